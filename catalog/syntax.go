package catalog

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/scanner"
	"github.com/goccy/go-yaml/token"

	"github.com/holdfast-dev/holdfast"
)

// This file is the only one that knows the YAML library. It turns a file into a small tree of its own and keeps the
// library away from what would take it hours, gigabytes or the stack: it recurses into every level and into every
// sibling of a block mapping, and writes the whole path into every node.
const (
	maxTokens   = 100_000                         // a catalog of a thousand features has less than half
	maxDepth    = 10                              // the deepest field of a catalog is at 6
	maxScalar   = 512                             // runes; twice the longest name, written with escapes
	maxKey      = 2 * holdfast.MaxIdentifierBytes // runes
	maxEmpty    = 1000                            // fields without a value: every one is a problem anyway
	maxSiblings = 2 * holdfast.MaxCatalogNames    // so that a thousand and one names get the better message
)

// kind is what a node is.
type kind int

const (
	nothing kind = iota // a field with nothing behind its colon, or null
	text
	number
	boolean
	list
	mapping
)

// String is the kind as messages call it.
func (k kind) String() string {
	return [...]string{"nothing", "text", "a number", "true or false", "a list", "a mapping"}[k]
}

// node is a value of the file.
type node struct {
	kind  kind
	at    place
	text  string  // of a text: its content; of a number or a boolean: as written
	items []*node // of a list
	pairs []pair  // of a mapping, in the order of the file
}

// pair is a field of a mapping. The key is a text, a number, a boolean or nothing.
type pair struct{ key, value *node }

// readYAML parses the text. It returns nil where it has reported why.
func readYAML(s *source, r *report) (root *node) {
	// The library is known to have panicked on damaged input. The file is refused like any other that is not YAML.
	defer func() {
		if recover() != nil {
			r.add(place{1, 1}, "", "not valid YAML", "check indentation, quotes and brackets")
			root = nil
		}
	}()
	tokens := scanTokens(s.text)
	if checkTokens(s, tokens, r); r.found() {
		return nil
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		reportSyntax(s, err, r)
		return nil
	}
	if len(file.Docs) == 0 || file.Docs[0].Body == nil {
		r.add(place{1, 1}, "", "the file is empty", "begin with units:")
		return nil
	}
	return convert(s, file.Docs[0].Body)
}

// scanTokens reads the tokens up to the first one that is not YAML. Going on behind that, as the library's own lexer
// does, would show it parts of the file in another light than lineScan saw them.
func scanTokens(text string) token.Tokens {
	var tokens token.Tokens
	var scan scanner.Scanner
	scan.Init(text)
	for {
		some, err := scan.Scan()
		if errors.Is(err, io.EOF) {
			return tokens
		}
		tokens.Add(some...)
		if err != nil {
			return tokens
		}
	}
}

// checkTokens refuses what the parser could not be trusted with.
func checkTokens(s *source, tokens token.Tokens, r *report) {
	var block blocks
	var flow []token.Type // the brackets that are open, outermost first
	empties := 0
	for i, t := range tokens {
		at := s.within(placeOf(t))
		owner := at // whose value the next token is, if any
		switch t.Type {
		case token.DocumentHeaderType:
			if i > 0 {
				r.add(at, "", "a second document begins", "keep one document per file")
				return
			}
		case token.DocumentEndType:
			r.add(at, "", "ends of documents are not supported", "remove this line")
			return
		case token.SequenceStartType, token.MappingStartType:
			flow = append(flow, t.Type)
		case token.SequenceEndType, token.MappingEndType:
			flow = flow[:max(0, len(flow)-1)]
		case token.SequenceEntryType:
			block.entry(at.column)
		case token.MappingValueType:
			if i == 0 {
				break
			}
			key := tokens[i-1]
			owner = s.within(placeOf(key))
			if utf8.RuneCountInString(key.Value) > maxKey {
				r.add(owner, "", fmt.Sprintf("a key of more than %d characters", maxKey), "shorten it")
				return
			}
			if len(flow) == 0 {
				block.key(owner.column)
			}
		default:
			if utf8.RuneCountInString(t.Value) > maxScalar {
				r.add(at, "", fmt.Sprintf("a text of more than %d characters", maxScalar), "shorten it")
				return
			}
		}
		if empty(tokens, i, owner, len(flow) > 0, len(flow) > 0 && flow[len(flow)-1] == token.MappingStartType) {
			empties++
		}
		switch {
		case len(flow)+len(block) > maxDepth:
			r.add(at, "", fmt.Sprintf("nested more than %d deep", maxDepth), "check indentation and brackets")
			return
		case block.siblings() > maxSiblings:
			r.add(at, "", fmt.Sprintf("more than %d keys side by side", maxSiblings), fmt.Sprintf("keep at most %d of a kind", holdfast.MaxCatalogNames))
			return
		case empties > maxEmpty:
			r.add(at, "", fmt.Sprintf("more than %d fields without a value", maxEmpty), "write key: value")
			return
		case i == maxTokens:
			r.add(at, "", "the file has too many values", "shorten it")
			return
		}
	}
}

// empty is true for a key, a dash or a word in braces behind which the parser will put a null of its own. Owner is where
// the key or dash stands, and braces whether the innermost brackets are those of a mapping.
func empty(tokens token.Tokens, i int, owner place, flow, braces bool) bool {
	this := tokens[i]
	isOwner := this.Type == token.MappingValueType || this.Type == token.SequenceEntryType
	if i+1 == len(tokens) {
		return isOwner
	}
	next := tokens[i+1]
	if flow {
		ends := next.Type == token.CollectEntryType || next.Type == token.MappingEndType || next.Type == token.SequenceEndType
		before := token.UnknownType
		if i > 0 {
			before = tokens[i-1].Type
		}
		word := braces && (before == token.MappingStartType || before == token.CollectEntryType)
		return ends && (isOwner || word)
	}
	if !isOwner || next.Position.Line == owner.line {
		return false
	}
	isList := this.Type == token.MappingValueType && next.Type == token.SequenceEntryType
	return next.Position.Column < owner.column || next.Position.Column == owner.column && !isList
}

// blocks are the mappings and lists, written by indentation, that are open at one point of the file, outermost first.
type blocks []openBlock

type openBlock struct {
	column  int
	entries bool // a list
	members int
}

// entry is a list's dash at that column. It may stand at the column of the key that it belongs to.
func (b *blocks) entry(column int) {
	b.close(func(o openBlock) bool { return o.column > column })
	b.member(openBlock{column: column, entries: true})
}

// key is a mapping's key at that column.
func (b *blocks) key(column int) {
	b.close(func(o openBlock) bool { return o.column > column || o.column == column && o.entries })
	b.member(openBlock{column: column})
}

func (b *blocks) close(ended func(openBlock) bool) {
	for len(*b) > 0 && ended((*b)[len(*b)-1]) {
		*b = (*b)[:len(*b)-1]
	}
}

func (b *blocks) member(of openBlock) {
	if n := len(*b); n == 0 || (*b)[n-1].column != of.column || (*b)[n-1].entries != of.entries {
		*b = append(*b, of)
	}
	(*b)[len(*b)-1].members++
}

// siblings is how many keys the innermost block has so far, if it is a mapping: the parser handles lists in a loop.
func (b blocks) siblings() int {
	if len(b) == 0 || b[len(b)-1].entries {
		return 0
	}
	return b[len(b)-1].members
}

func placeOf(t *token.Token) place {
	if t == nil || t.Position == nil {
		return place{1, 1}
	}
	return place{t.Position.Line, t.Position.Column}
}

// advice says what to do about the parser's messages, by a part of them.
var advice = []struct{ part, suggestion string }{
	{"could not find end character", "close the quotes"},
	{"escape character", "write the text in single quotes"},
	{"reserved character", "put the text into quotes"},
	{"sequence end token", "close the list with ]"},
	{"',' or ']'", "put a comma between the items, or close the list with ]"},
	{"flow mapping end token", "close the mapping with }"},
	{"',' or '}'", "put a comma between the fields, or close the mapping with }"},
	{"corresponding to", "remove the bracket, or open it before"},
	{"mapping value is not allowed", "indent the next line like this one, or put text that contains a colon into quotes"},
	{"block sequence entries are not allowed", "begin the list on the next line"},
	{"non-map value", "write key: value, or check the indentation"},
	{"map key-value is pre-defined", "indent this line like the one it belongs with"},
}

func reportSyntax(s *source, err error, r *report) {
	at, message, suggestion := place{1, 1}, "not valid YAML", "check indentation, quotes and brackets"
	var located yaml.Error
	if errors.As(err, &located) {
		at = s.within(placeOf(located.GetToken()))
		message += ": " + located.GetMessage()
		for _, a := range advice {
			if strings.Contains(message, a.part) {
				suggestion = a.suggestion
				break
			}
		}
	}
	r.add(at, "", message, suggestion)
}

// convert copies what the library parsed. checkTokens has bounded how deep it goes.
func convert(s *source, parsed ast.Node) *node {
	if parsed == nil {
		return &node{at: place{1, 1}}
	}
	n := &node{at: s.within(placeOf(parsed.GetToken()))}
	switch parsed := parsed.(type) {
	case *ast.MappingNode:
		n.kind = mapping
		for _, value := range parsed.Values {
			n.pairs = append(n.pairs, convertPair(s, value))
		}
		if !parsed.IsFlowStyle && len(n.pairs) > 0 {
			n.at = n.pairs[0].key.at
		}
	case *ast.MappingValueNode:
		n.kind = mapping
		n.pairs = []pair{convertPair(s, parsed)}
		n.at = n.pairs[0].key.at
	case *ast.SequenceNode:
		n.kind = list
		for _, value := range parsed.Values {
			n.items = append(n.items, convert(s, value))
		}
	case *ast.StringNode:
		n.kind, n.text = text, parsed.Value
		if parsed.Token.Type == token.StringType {
			n.at = s.locate(n.at, n.text)
		}
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		n.kind, n.text = number, parsed.GetToken().Value
		n.at = s.locate(n.at, n.text)
	case *ast.BoolNode:
		n.kind, n.text = boolean, parsed.Token.Value
		n.at = s.locate(n.at, n.text)
	}
	return n
}

func convertPair(s *source, parsed *ast.MappingValueNode) pair {
	p := pair{key: convert(s, parsed.Key), value: convert(s, parsed.Value)}
	if p.value.kind == nothing {
		p.value.at = p.key.at
	}
	return p
}
