"use strict";

// Everything from the document is put in as text, never as markup.
function element(name, className, ...parts) {
	const made = document.createElement(name);
	if (className) made.className = className;
	made.append(...parts.filter((part) => part !== undefined && part !== ""));
	return made;
}

// folded is closed until somebody opens it.
function folded(head, ...parts) {
	const made = element("details", "", element("summary", "", ...head));
	made.append(...parts);
	return made;
}

// breakable is a path that a narrow screen breaks at its slashes.
function breakable(path) {
	const [start, ...rest] = path.split(/(?=[/])/);
	return [start, ...rest.flatMap((part) => [element("wbr"), part])];
}

// between puts a word between the parts of a list.
function between(word, lists) {
	return lists.flatMap((list, i) => i === 0 ? list : [word, ...list]);
}

// The address names a call or a shape: it is opened, and whatever it is folded into.
function showNamed() {
	const named = document.getElementById(location.hash.slice(1));
	if (!named) return;
	for (let at = named; at; at = at.parentElement) {
		if (at.localName === "details") at.open = true;
	}
	named.scrollIntoView();
	const head = named.querySelector("summary");
	if (head) head.focus();
}

// render shows the whole document: the calls by their tags, then the shapes that they send and answer.
function render(api) {
	const schemas = api.components.schemas;
	const nameOf = (schema) => schema.$ref.split("/").pop();

	// kind says what a value is, in a few words; shapes lead to their fields.
	function kind(schema) {
		if (schema.$ref) {
			const link = element("a", "", nameOf(schema));
			link.href = "#" + nameOf(schema);
			return [link];
		}
		if (schema.anyOf) return between(" or ", schema.anyOf.map(kind));
		if (schema.enum) return [schema.enum.join(" or ")];
		if (schema.items) return ["list of ", ...kind(schema.items)];
		const type = [].concat(schema.type || "any").join(" or ");
		if (schema.format === "date-time") return [type.replace("string", "time")];
		const values = schema.additionalProperties;
		return values && values.type ? [type + " of ", ...kind(values)] : [type];
	}

	// described is a list of what has a name, a type and a meaning.
	function described(rows) {
		return element("dl", "", ...rows.map(({ name, type, text }) =>
			element("div", "field", element("dt", "name", name), element("dd", "type", ...type), element("dd", "", text))));
	}

	// fields are those of a shape. A request refuses unknown fields and says what it requires; an answer what may be missing.
	function fields(shape) {
		const isRequest = shape.additionalProperties === false;
		if (!shape.properties) return isRequest ? [element("p", "type", "no fields")] : [];
		const required = shape.required || [];
		return [described(Object.entries(shape.properties).map(([name, field]) => {
			let note = "";
			if (isRequest && required.includes(name)) note = ", required";
			if (!isRequest && !required.includes(name)) note = ", may be left out";
			return { name, type: [...kind(field), note], text: field.description };
		}))];
	}

	// content is what a body holds: the name of its shape, or of each that it may have, and the fields.
	function content(schema) {
		if (schema.anyOf) return schema.anyOf.flatMap(content);
		return [element("p", "type", ...kind(schema)), ...fields(schema.$ref ? schemas[nameOf(schema)] : schema)];
	}

	function answer(status, response) {
		const parts = Object.values(response.content || {}).flatMap((body) => body.schema ? content(body.schema) : []);
		const headers = Object.entries(response.headers || {});
		if (headers.length > 0) {
			parts.push(element("h3", "", "Headers"), described(headers.map(([name, header]) =>
				({ name, type: kind(header.schema), text: header.description }))));
		}
		return folded([element("span", "status", status + " "), response.description], ...parts);
	}

	function call(method, path, operation) {
		const line = element("span", "line", element("span", "method", method.toUpperCase()),
			element("span", "path", ...breakable(path)), element("span", "note", operation.summary));
		const made = folded([line], element("p", "", operation.description));
		made.id = operation.operationId;
		if (operation.parameters) {
			made.append(element("h3", "", "Parameters"), described(operation.parameters.map((parameter) => ({
				name: parameter.name,
				type: [parameter.in + ", ", ...kind(parameter.schema), parameter.required ? ", required" : ""],
				text: parameter.description,
			}))));
		}
		if (operation.requestBody) {
			made.append(element("h3", "", "Body"), ...Object.entries(operation.requestBody.content).flatMap(([type, body]) =>
				type === "application/json" ? content(body.schema) : [element("p", "type", type)]));
		}
		made.append(element("h3", "", "Answers"), ...Object.entries(operation.responses).map(([status, response]) => answer(status, response)));
		return made;
	}

	document.getElementById("about").textContent = api.info.description + " Version " + api.info.version + ".";
	const calls = document.getElementById("calls");
	for (const tag of api.tags) {
		calls.append(element("h2", "", tag.name));
		for (const [path, item] of Object.entries(api.paths)) {
			for (const [method, operation] of Object.entries(item)) {
				if (operation.tags.includes(tag.name)) calls.append(call(method, path, operation));
			}
		}
	}
	calls.append(element("h2", "", "Shapes"));
	for (const [name, schema] of Object.entries(schemas)) {
		const made = folded([element("span", "name", name)], ...fields(schema));
		made.id = name;
		calls.append(made);
	}
	addEventListener("hashchange", showNamed);
	showNamed();
}

fetch("/openapi.json").then((answer) => {
	if (!answer.ok) throw new Error("status " + answer.status);
	return answer.json();
}).then(render).catch((error) => {
	document.getElementById("about").textContent = "The document at /openapi.json could not be read: " + error.message;
});
