"use strict";

// Everything from the document is put in as text, never as markup.
function element(name, text, className) {
	const made = document.createElement(name);
	if (text) made.textContent = text;
	if (className) made.className = className;
	return made;
}

function table(head, rows) {
	const made = element("table");
	for (const [cell, cells] of [["th", [head]], ["td", rows]]) {
		for (const row of cells) {
			const line = element("tr");
			for (const text of row) line.append(element(cell, text));
			made.append(line);
		}
	}
	return made;
}

fetch("/openapi.json").then((answer) => {
	if (!answer.ok) throw new Error("status " + answer.status);
	return answer.json();
}).then((api) => {
	const schemas = api.components.schemas;
	const resolve = (schema) => schema.$ref ? schemas[schema.$ref.split("/").pop()] : schema;

	// word says what a value is, in a few words.
	function word(schema) {
		if (schema.$ref) return schema.$ref.split("/").pop();
		if (schema.anyOf) return schema.anyOf.map(word).join(" or ");
		if (schema.enum) return schema.enum.join(" or ");
		const type = [].concat(schema.type || "any").join(" or ");
		if (schema.items) return "list of " + word(schema.items);
		return schema.format === "date-time" ? type.replace("string", "time") : type;
	}

	function fields(schema) {
		if (schema.anyOf) return schema.anyOf.flatMap((one) => [element("p", word(one)), ...fields(one)]);
		const shown = resolve(schema);
		if (!shown.properties) return [];
		const required = shown.required || [];
		const rows = Object.entries(shown.properties).map(([name, field]) =>
			[name, word(field), required.includes(name) ? "always" : "may be left out", field.description || ""]);
		return [table(["field", "type", "", ""], rows)];
	}

	function call(method, path, operation) {
		const made = element("details");
		made.id = operation.operationId;
		const head = element("summary");
		head.append(element("span", method.toUpperCase(), "method"), element("span", path, "path"), element("span", operation.summary, "note"));
		made.append(head, element("p", operation.description));
		if (operation.parameters) {
			made.append(element("h4", "Parameters"), table(["name", "in", "type", ""],
				operation.parameters.map((p) => [p.name, p.in + (p.required ? ", required" : ""), word(p.schema), p.description || ""])));
		}
		if (operation.requestBody) {
			const schema = operation.requestBody.content["application/json"].schema;
			made.append(element("h4", "Body"), ...fields(schema));
		}
		for (const [status, response] of Object.entries(operation.responses)) {
			made.append(element("h4", status + " " + response.description));
			for (const content of Object.values(response.content || {})) {
				const shown = element("details");
				shown.append(element("summary", word(content.schema)), ...fields(content.schema));
				made.append(shown);
			}
		}
		return made;
	}

	document.getElementById("about").textContent = api.info.description + " Version " + api.info.version + ".";
	const calls = document.getElementById("calls");
	for (const tag of api.tags) {
		calls.append(element("h2", tag.name));
		for (const [path, item] of Object.entries(api.paths)) {
			for (const [method, operation] of Object.entries(item)) {
				if (operation.tags.includes(tag.name)) calls.append(call(method, path, operation));
			}
		}
	}
}).catch((error) => {
	document.getElementById("about").textContent = "The document at /openapi.json could not be read: " + error.message;
});
