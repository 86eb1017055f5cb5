package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/holdfast-dev/holdfast"
)

// ErrCursor is the cause of the Rejected error that Read answers to a cursor which no page of this list gave out. It is
// the one such error that is the caller's fault and not ours: an edge answers it with 400.
var ErrCursor = errors.New("no page of this list gave out this cursor")

// positionBytes is how long a place in each list is: an id, a time and an id, a number.
var positionBytes = map[QueryKind]int{QueryState: 0, QueryReservations: 16, QueryGrants: 8 + 16, QueryEntries: 8}

// Position checks the query and says behind which place its page begins, in the bytes that NextCursor was given; nil
// means the first page. The error is Rejected.
func (q *Query) Position() ([]byte, error) {
	length, known := positionBytes[q.Kind]
	switch {
	case !known:
		return nil, q.rejected(fmt.Errorf("there is no list %q", q.Kind))
	case q.Kind != QueryState && (q.Limit < 1 || q.Limit > holdfast.MaxPage):
		return nil, q.rejected(fmt.Errorf("a page holds 1 to %d, not %d", holdfast.MaxPage, q.Limit))
	case q.Cursor == "":
		return nil, nil
	}
	if len(q.Cursor) > 64 { // longer than any that NextCursor writes; do not decode what a stranger made long
		return nil, q.rejected(ErrCursor)
	}
	raw, err := base64.RawURLEncoding.DecodeString(q.Cursor)
	if err != nil || len(raw) != length+checkBytes || q.NextCursor(raw[:length]) != q.Cursor {
		return nil, q.rejected(ErrCursor)
	}
	return raw[:length], nil
}

// NextCursor writes the cursor of the page that follows the place: an opaque text for this list of this account alone.
func (q *Query) NextCursor(position []byte) string {
	raw := append(bytes.Clone(position), q.cursorCheck(position)...)
	return base64.RawURLEncoding.EncodeToString(raw)
}

const checkBytes = 4

// cursorCheck tells a cursor from a guess and from another list's. It keeps no secret: a cursor is a place, not a right.
func (q *Query) cursorCheck(position []byte) []byte {
	hash := sha256.New()
	hash.Write([]byte(q.Kind))
	hash.Write(q.Account[:])
	hash.Write(position)
	return hash.Sum(nil)[:checkBytes]
}

func (q *Query) rejected(err error) error {
	return &Error{Kind: Rejected, Op: "read a page", Err: err}
}
