// Package catalog turns the YAML file in which an operator writes what is sold into a holdfast.Catalog.
//
//	file ──► source.go ──► syntax.go ──► fields.go, scalars.go ──► compile.go, feature.go, ──► holdfast.Catalog
//	          text          tree          one value at a time       plan.go, product.go             │
//	            │              │                │                    the rules                      │
//	            └──────────────┴────────────────┴──────────────────────┴──► Problems                └─ or none at all
//
// The CLI, the server and the tests call it, with a file or with the embedded example.
//
// A file is checked whole, every problem is told at once, with its place and what to write instead, and a file with any
// problem is refused whole. Diff tells what another version changes and for whom (diff.go, outline.go); Missing refuses one
// that drops what accounts hold (inuse.go). What it never does: guess what a value was meant to be, number a version, or keep one.
package catalog
