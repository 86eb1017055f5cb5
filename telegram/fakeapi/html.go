package fakeapi

import (
	"html"
	"strconv"
	"strings"
	"unicode/utf16"
)

// The tags that parse_mode HTML knows, and the entities they become.
var tags = map[string]string{
	"b": "bold", "strong": "bold", "i": "italic", "em": "italic", "u": "underline", "ins": "underline", "s": "strikethrough",
	"strike": "strikethrough", "del": "strikethrough", "tg-spoiler": "spoiler", "span": "spoiler", "a": "text_link", "code": "code",
	"pre": "pre", "blockquote": "blockquote", "tg-emoji": "custom_emoji", "tg-time": "date_time",
}

// parseHTML takes the tags out of a text, as parse_mode HTML does.
func parseHTML(text string) (plain string, entities []Entity, problem *refusal) {
	type open struct {
		tag    string
		entity Entity
		at     int // in entities
	}
	var out strings.Builder
	var stack []open
	units := 0
	write := func(s string) {
		s = html.UnescapeString(s)
		out.WriteString(s)
		units += utf16Length(s)
	}
	for rest := text; rest != ""; {
		offset := len(text) - len(rest)
		start := strings.IndexByte(rest, '<')
		if start < 0 {
			write(rest)
			break
		}
		write(rest[:start])
		offset += start
		rest = rest[start:]
		end := strings.IndexByte(rest, '>')
		if end < 0 {
			return "", nil, bad("can't parse entities: Unclosed start tag at byte offset %d", offset)
		}
		inside := rest[1:end]
		rest = rest[end+1:]
		if name, closing := strings.CutPrefix(inside, "/"); closing {
			name = strings.ToLower(strings.TrimSpace(name))
			if len(stack) == 0 {
				return "", nil, bad("can't parse entities: Unexpected end tag at byte offset %d", offset)
			}
			top := stack[len(stack)-1]
			if name != "" && name != top.tag {
				return "", nil, bad("can't parse entities: Unmatched end tag at byte offset %d, expected \"</%s>\", found \"</%s>\"", offset, top.tag, name)
			}
			stack = stack[:len(stack)-1]
			top.entity.Length = units - top.entity.Offset
			if top.entity.Length > 0 && top.entity.Type != "" {
				entities[top.at] = top.entity
			}
			continue
		}
		name, attributes, _ := strings.Cut(inside, " ")
		name = strings.ToLower(name)
		kind, known := tags[name]
		if !known {
			return "", nil, bad("can't parse entities: Unsupported start tag \"%s\" at byte offset %d", name, offset)
		}
		e := Entity{Type: kind, Offset: units}
		switch name {
		case "a":
			e.URL = attribute(attributes, "href")
			if e.URL == "" {
				e.Type = ""
			}
		case "tg-emoji":
			e.EmojiID = attribute(attributes, "emoji-id")
		case "tg-time":
			e.UnixTime, _ = strconv.ParseInt(attribute(attributes, "unix"), 10, 64)
			e.Format = attribute(attributes, "format")
		case "code":
			e.Language = strings.TrimPrefix(attribute(attributes, "class"), "language-")
		}
		stack = append(stack, open{tag: name, entity: e, at: len(entities)})
		entities = append(entities, Entity{})
	}
	if len(stack) > 0 {
		return "", nil, bad("can't parse entities: Can't find end tag corresponding to start tag \"%s\"", stack[len(stack)-1].tag)
	}
	kept := entities[:0]
	for _, e := range entities {
		if e.Type != "" {
			kept = append(kept, e)
		}
	}
	return out.String(), kept, nil
}

// attribute is the value of an attribute, in either kind of quotes or none.
func attribute(attributes, name string) string {
	_, value, found := strings.Cut(attributes, name+"=")
	if !found || value == "" {
		return ""
	}
	if quote := value[0]; quote == '"' || quote == '\'' {
		value, _, _ = strings.Cut(value[1:], string(quote))
	} else {
		value, _, _ = strings.Cut(value, " ")
	}
	return html.UnescapeString(value)
}

func utf16Length(s string) int { return len(utf16.Encode([]rune(s))) }
