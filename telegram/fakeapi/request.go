package fakeapi

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// maxRequest is the largest body that is read: Telegram takes files of 50 MB.
const maxRequest = 64 << 20

// parameters are those of a call, whichever way they came. Structures are JSON text, as Telegram takes them in forms.
type parameters struct {
	values map[string]string
	files  map[string]upload
}

type upload struct {
	name    string
	content []byte
}

// readParameters reads the query and the body: JSON, urlencoded or multipart.
func readParameters(r *http.Request) (parameters, error) {
	p := parameters{values: map[string]string{}, files: map[string]upload{}}
	p.addAll(r.URL.Query())
	kind, more, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	body := http.MaxBytesReader(nil, r.Body, maxRequest)
	switch kind {
	case "application/json":
		content, err := io.ReadAll(body)
		if err != nil || len(content) == 0 {
			return p, err
		}
		return p, p.addJSON(content)
	case "multipart/form-data":
		content, err := io.ReadAll(body)
		if err != nil || len(content) == 0 { // some libraries send nothing where there are no parameters
			return p, err
		}
		return p, p.addParts(string(content), more["boundary"])
	case "application/x-www-form-urlencoded":
		content, err := io.ReadAll(body)
		if err != nil {
			return p, err
		}
		form, err := url.ParseQuery(string(content))
		if err != nil {
			return p, err
		}
		p.addAll(form)
	}
	return p, nil
}

func (p parameters) addAll(form url.Values) {
	for name, values := range form {
		if len(values) > 0 {
			p.values[name] = values[0]
		}
	}
}

func (p parameters) addJSON(content []byte) error {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(content, &object); err != nil {
		return err
	}
	for name, raw := range object {
		var text string
		switch {
		case string(raw) == "null":
		case json.Unmarshal(raw, &text) == nil:
			p.values[name] = text
		default:
			p.values[name] = string(raw)
		}
	}
	return nil
}

func (p parameters) addParts(content, boundary string) error {
	reader := multipart.NewReader(strings.NewReader(content), boundary)
	for {
		part, err := reader.NextPart()
		if errors.Is(err, io.EOF) || err != nil && strings.HasSuffix(err.Error(), "EOF") {
			return nil
		}
		if err != nil {
			return err
		}
		value, err := io.ReadAll(part)
		if err != nil {
			return err
		}
		if part.FileName() != "" {
			p.files[part.FormName()] = upload{name: part.FileName(), content: value}
		} else {
			p.values[part.FormName()] = string(value)
		}
	}
}

func (p parameters) text(name string) string { return p.values[name] }

func (p parameters) has(name string) bool { _, ok := p.values[name]; return ok }

func (p parameters) number(name string) int64 {
	n, _ := strconv.ParseInt(strings.TrimSpace(p.values[name]), 10, 64)
	return n
}

// flag is true for what Telegram takes for true.
func (p parameters) flag(name string) bool {
	switch strings.ToLower(p.values[name]) {
	case "true", "1", "yes", "t", "y":
		return true
	}
	return false
}

// decode reads a structure. Left out, it leaves into as it is.
func (p parameters) decode(name string, into any) *refusal {
	value := p.values[name]
	if value == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(value), into); err != nil {
		return bad("can't parse %s JSON object", strings.ReplaceAll(name, "_", " "))
	}
	return nil
}
