package postgres

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// list is a column of one table, for many rows at once. An empty one is an array without elements, never NULL.
type list[T any] = pgtype.FlatArray[T]

// listCodec writes our lists in the binary format in one pass. The driver's own codec makes an interface value of every
// element, and lets the buffer grow with them; a batch has tens of thousands. All else is left to it.
type listCodec struct{ *pgtype.ArrayCodec }

// PlanEncode returns one of the plans below for a list of ours.
func (c listCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if format == pgtype.BinaryFormatCode {
		switch value.(type) {
		case list[uuid]:
			return encodeList[uuid]{pgtype.UUIDOID, func(uuid) int { return 16 }, func(to []byte, id uuid) []byte { return append(to, id[:]...) }}
		case list[moment]:
			return encodeList[moment]{pgtype.TimestamptzOID, widthOfMoment, appendMoment}
		case list[place]:
			return encodeList[place]{pgtype.TIDOID, func(place) int { return 6 }, func(to []byte, at place) []byte {
				return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint32(to, at.block), at.offset)
			}}
		case list[int64]:
			return encodeList[int64]{pgtype.Int8OID, func(int64) int { return 8 }, func(to []byte, n int64) []byte {
				return binary.BigEndian.AppendUint64(to, uint64(n))
			}}
		case list[string]:
			return encodeList[string]{pgtype.TextOID, func(text string) int { return len(text) }, func(to []byte, text string) []byte { return append(to, text...) }}
		}
	}
	return c.ArrayCodec.PlanEncode(m, oid, format, value)
}

// quickLists gives the driver our codec where it has its own.
func quickLists(types *pgtype.Map) {
	for _, oid := range []uint32{pgtype.UUIDArrayOID, pgtype.TimestamptzArrayOID, pgtype.TIDArrayOID, pgtype.Int8ArrayOID, pgtype.TextArrayOID} {
		array, known := types.TypeForOID(oid)
		if !known {
			continue
		}
		if codec, own := array.Codec.(*pgtype.ArrayCodec); own {
			types.RegisterType(&pgtype.Type{Name: array.Name, OID: oid, Codec: listCodec{codec}})
		}
	}
}

// encodeList writes a list of elements of one type.
type encodeList[T any] struct {
	element uint32
	width   func(T) int // null: NULL
	append  func([]byte, T) []byte
}

// null is the width of an element that is NULL.
const null = -1

// Encode appends the array: dimensions, whether there may be NULLs, the type, how many from which index, and each element
// with its width before it.
func (e encodeList[T]) Encode(value any, to []byte) ([]byte, error) {
	elements := value.(list[T])
	if elements == nil {
		return nil, nil
	}
	size := 20
	for _, element := range elements {
		size += 4 + max(0, e.width(element))
	}
	to = slices.Grow(to, size)
	for _, word := range []uint32{1, 1, e.element, uint32(len(elements)), 1} {
		to = binary.BigEndian.AppendUint32(to, word)
	}
	for _, element := range elements {
		width := e.width(element)
		to = binary.BigEndian.AppendUint32(to, uint32(int32(width)))
		if width != null {
			to = e.append(to, element)
		}
	}
	return to, nil
}

func widthOfMoment(m moment) int {
	if time.Time(m).IsZero() {
		return null
	}
	return 8
}

// appendMoment counts microseconds from the year 2000.
func appendMoment(to []byte, m moment) []byte {
	return binary.BigEndian.AppendUint64(to, uint64(time.Time(m).UnixMicro()-epoch))
}

var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
