package postgres

import (
	"bytes"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

func TestListsAreWrittenAsTheDriverWritesThem(t *testing.T) {
	ours, theirs := pgtype.NewMap(), pgtype.NewMap()
	quickLists(ours)
	for _, c := range []struct {
		oid   uint32
		value any
	}{
		{pgtype.UUIDArrayOID, list[uuid]{{1, 2, 3}, {}}},
		{pgtype.Int8ArrayOID, list[int64]{0, -1, 1 << 60}},
		{pgtype.TextArrayOID, list[string]{"", "a", "слово", `{",\`}},
		{pgtype.TimestamptzArrayOID, list[moment]{moment(now), moment(now.Add(time.Microsecond)), moment(time.Date(1955, 11, 5, 6, 15, 0, 7000, time.UTC))}},
		{pgtype.BoolArrayOID, list[bool]{true, false}},
		{pgtype.TextArrayOID, []string{"not ours"}},
		{pgtype.UUIDArrayOID, list[uuid](nil)},
	} {
		for _, format := range []int16{pgtype.BinaryFormatCode, pgtype.TextFormatCode} {
			got, err := ours.Encode(c.oid, format, c.value, []byte("before"))
			must(t, err)
			wanted, err := theirs.Encode(c.oid, format, c.value, []byte("before"))
			must(t, err)
			if format == pgtype.BinaryFormatCode && len(got) > 14 && len(wanted) > 14 {
				got[13], wanted[13] = 0, 0 // whether there may be NULLs: the server looks for itself
			}
			if !bytes.Equal(got, wanted) {
				t.Errorf("%v in format %d is %x, and the driver's %x", c.value, format, got, wanted)
			}
		}
	}
	// With NULL in it, which the driver writes in the same way.
	some := list[moment]{moment(now), {}}
	got, err := ours.Encode(pgtype.TimestamptzArrayOID, pgtype.BinaryFormatCode, some, nil)
	must(t, err)
	wanted, err := theirs.Encode(pgtype.TimestamptzArrayOID, pgtype.BinaryFormatCode, some, nil)
	must(t, err)
	if !bytes.Equal(got, wanted) {
		t.Errorf("a list with NULL is %x, and the driver's %x", got, wanted)
	}
}
