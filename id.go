package holdfast

import (
	"crypto/sha1"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"strings"
)

// ID names a reservation, a grant, an event or a command inside its account. The zero value names nothing.
type ID [16]byte

// AccountID is the shard key: the UUIDv5 of the project and the account's name. It never changes and is unique over all projects.
type AccountID [16]byte

// IsZero reports whether the id names nothing.
func (id ID) IsZero() bool { return id == ID{} }

// String is the usual hyphenated form of a UUID.
func (id ID) String() string { return formatUUID(id) }

// String is the usual hyphenated form of a UUID.
func (id AccountID) String() string { return formatUUID(id) }

// IsZero reports whether the id names no account.
func (id AccountID) IsZero() bool { return id == AccountID{} }

// holdfastNamespace is the UUIDv5 namespace of all accounts: the UUIDv5 of the name "holdfast.dev" in the DNS namespace
// of RFC 9562. Changing it would rename every account of every database.
var holdfastNamespace = ID(newUUIDv5([16]byte{0x6b, 0xa7, 0xb8, 0x10, 0x9d, 0xad, 0x11, 0xd1, 0x80, 0xb4, 0x00, 0xc0, 0x4f, 0xd4, 0x30, 0xc8}, "holdfast.dev"))

// AccountIDOf is the id of the account that a project calls name. Names are compared byte for byte.
func AccountIDOf(project, name string) AccountID {
	return AccountID(newUUIDv5(holdfastNamespace, project+"\x00"+name))
}

// cycleGrantID is the id of the grant that an allowance's cycle [start, end) opens, so that a read shows the id that will be
// written. Where a catalog turns days into months, the first day and the month begin together: the end tells them apart.
func cycleGrantID(account AccountID, allowance string, startMicro, endMicro int64) ID {
	var interval [16]byte
	for i := range 8 {
		interval[i] = byte(startMicro >> (56 - 8*i))
		interval[8+i] = byte(endMicro >> (56 - 8*i))
	}
	return ID(newUUIDv5(account, allowance+"\x00"+string(interval[:])))
}

// namedID is an id that follows from another one and a name: the same fact gets the same id, however often it is told.
func namedID(parent ID, name string) ID { return ID(newUUIDv5(parent, name)) }

// entryEventID is the id, within its account, of the event that tells of a ledger entry: a UUIDv8 that holds the number.
func entryEventID(no int64) ID {
	id := ID{6: 0x80, 8: 0x80}
	for i := range 7 {
		id[15-i] = byte(no >> (8 * i))
	}
	return id
}

// Child is the n-th further id of a command. The engine leaves the last two bytes of a command's id zero, and they count.
func (id ID) Child(n int) ID {
	assert(n >= 0 && n < 1<<16, "a command needs fewer than 65536 ids")
	id[14] ^= byte(n >> 8)
	id[15] ^= byte(n)
	return id
}

func newUUIDv5(namespace [16]byte, name string) [16]byte {
	var room [256]byte // of most names; a hash of its own would be an allocation, and so would its sum
	hash := sha1.Sum(append(append(room[:0], namespace[:]...), name...))
	id := [16]byte(hash[:16])
	id[6] = id[6]&0x0f | 0x50
	id[8] = id[8]&0x3f | 0x80
	return id
}

func formatUUID(id [16]byte) string {
	var text [36]byte
	hex.Encode(text[:8], id[:4])
	hex.Encode(text[9:13], id[4:6])
	hex.Encode(text[14:18], id[6:8])
	hex.Encode(text[19:23], id[8:10])
	hex.Encode(text[24:], id[10:])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	return string(text[:])
}

// RefKind is the prefix of a public id; it says what the id names.
type RefKind string

// The kinds of public ids.
const (
	ReservationRef RefKind = "rsv_"
	GrantRef       RefKind = "grt_"
	EventRef       RefKind = "evt_"
)

// errRef is what every public id that cannot be decoded gets: it exists nowhere.
var errRef = errors.New("no such id")

var refEncoding = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// Encode writes a public id: the prefix, then account and id in base32, 56 characters in all. It carries the account,
// so nothing is ever looked up by a reservation's id alone.
func (kind RefKind) Encode(account AccountID, id ID) string {
	var raw [32]byte
	copy(raw[:16], account[:])
	copy(raw[16:], id[:])
	return string(kind) + refEncoding.EncodeToString(raw[:])
}

// Parse reads a public id back. Only the exact text that Encode writes is accepted.
func (kind RefKind) Parse(text string) (AccountID, ID, error) {
	digits, found := strings.CutPrefix(text, string(kind))
	if !found {
		return AccountID{}, ID{}, errRef
	}
	raw, err := refEncoding.DecodeString(digits)
	if err != nil || len(raw) != 32 || refEncoding.EncodeToString(raw) != digits {
		return AccountID{}, ID{}, errRef
	}
	return AccountID(raw[:16]), ID(raw[16:]), nil
}

// MarshalText writes the hyphenated form; recorded answers keep ids this way.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// MarshalText writes the hyphenated form.
func (id AccountID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads the hyphenated form.
func (id *AccountID) UnmarshalText(text []byte) error {
	parsed, err := parseUUID(string(text))
	if err == nil {
		*id = AccountID(parsed)
	}
	return err
}

// UnmarshalText reads the hyphenated form.
func (id *ID) UnmarshalText(text []byte) error {
	parsed, err := parseUUID(string(text))
	if err == nil {
		*id = ID(parsed)
	}
	return err
}

func parseUUID(text string) (id [16]byte, err error) {
	digits := strings.ReplaceAll(text, "-", "")
	if len(digits) != 32 {
		return id, errRef
	}
	if _, err := hex.Decode(id[:], []byte(digits)); err != nil || formatUUID(id) != text {
		return [16]byte{}, errRef
	}
	return id, nil
}
