package catalog

import (
	"bytes"
	_ "embed"

	"github.com/holdfast-dev/holdfast"
)

//go:embed example.yaml
var example []byte

//go:embed schema.json
var schema []byte

// Embedded is the catalog that is used where none is given: the example, with Version 0. Every call returns a new one.
func Embedded() *holdfast.Catalog {
	catalog, err := Parse("example.yaml", example)
	if err != nil {
		panic("catalog: the embedded example: " + err.Error())
	}
	return catalog
}

// EmbeddedSource is the file that Embedded is compiled from.
func EmbeddedSource() []byte { return bytes.Clone(example) }

// Schema is the JSON Schema of the file, by which editors complete and check. It knows the fields and the shape of their
// values; the rules between fields are Parse's alone.
func Schema() []byte { return bytes.Clone(schema) }
