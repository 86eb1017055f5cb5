// Package web is the page of `holdfast demo`: a chat on one side, what the database believes on the other, and the buttons of
// fate between them.
//
// Package cmd serves it and answers what it asks for: GET /state, GET /pictures/{file}, POST /do. The page is plain HTML, CSS and
// one module of JavaScript, embedded as they are; there is no build. What it never does: load anything from anywhere else, keep
// anything in the browser, or reckon: every number that it shows was read from the database.
package web

import (
	"embed"
	"net/http"
)

//go:embed index.html demo.css demo.js icon.svg
var files embed.FS

// policy lets the page have what is served beside it, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"

// Handler serves the page and its files.
func Handler() http.Handler {
	served := http.FileServerFS(files)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", policy)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Referrer-Policy", "no-referrer")
		w.Header().Set("Cache-Control", "no-cache") // a newer program has another page at the same address
		served.ServeHTTP(w, r)
	})
}
