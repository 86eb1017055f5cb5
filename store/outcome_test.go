package store

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
)

// texts are what package json treats differently.
var texts = []string{
	"", "image.generate", `a "quoted" \ text`, "<b>&amp;</b>", "line\nbreak\ttab\x00\x1f\x7f", "Ответ ✓ 💳", "sep\u2028arated\u2029", "broken \xff\xc3 utf-8", "~}{][:,",
}

var zones = []*time.Location{time.UTC, time.FixedZone("east", 5*3600+45*60), time.FixedZone("zero", 0)}

// fill sets every exported field below value, each to something else or to nothing.
func fill(random *rand.Rand, value reflect.Value) {
	if random.IntN(4) == 0 {
		return // stays zero
	}
	switch value.Interface().(type) {
	case time.Time:
		at := time.Unix(random.Int64N(1<<34)-1<<33, random.Int64N(1e9)).In(zones[random.IntN(len(zones))])
		if random.IntN(20) == 0 {
			at = time.Time{}.AddDate(random.IntN(2)*12_000-1, 0, 0)
		}
		value.Set(reflect.ValueOf(at))
		return
	}
	switch value.Kind() {
	case reflect.String:
		value.SetString(texts[random.IntN(len(texts))])
	case reflect.Bool:
		value.SetBool(true)
	case reflect.Int, reflect.Int64:
		value.SetInt(random.Int64() - 1<<62)
	case reflect.Uint8:
		value.SetUint(uint64(random.IntN(256)))
	case reflect.Array:
		for i := range value.Len() {
			fill(random, value.Index(i))
		}
	case reflect.Slice:
		value.Set(reflect.MakeSlice(value.Type(), random.IntN(3), 3))
		for i := range value.Len() {
			fill(random, value.Index(i))
		}
	case reflect.Map:
		value.Set(reflect.MakeMap(value.Type()))
		for range random.IntN(4) {
			key, item := reflect.New(value.Type().Key()).Elem(), reflect.New(value.Type().Elem()).Elem()
			fill(random, key)
			fill(random, item)
			value.SetMapIndex(key, item)
		}
	case reflect.Pointer:
		value.Set(reflect.New(value.Type().Elem()))
		fill(random, value.Elem())
	case reflect.Struct:
		for i := range value.NumField() {
			if value.Type().Field(i).IsExported() {
				fill(random, value.Field(i))
			}
		}
	}
}

// seldom are the parts of an outcome that are left to package json.
var seldom = []string{"Problems", "Refusal", "Grant", "Account", "Payment"}

func TestAnOutcomeIsWrittenByteForByteAsPackageJSONWritesIt(t *testing.T) {
	written := 0
	for seed := range uint64(5_000) {
		random := rand.New(rand.NewPCG(seed, 0))
		o := &holdfast.Outcome{}
		value := reflect.ValueOf(o).Elem()
		for i := range value.NumField() {
			if name := value.Type().Field(i).Name; random.IntN(20) == 0 || !slices.Contains(seldom, name) {
				fill(random, value.Field(i))
			}
		}
		want, refused := json.Marshal(o)
		got, err := PackOutcome(o)
		if (refused == nil) != (err == nil) || got != string(want) {
			t.Fatalf("seed %d: %v\n%s\nwanted %v\n%s", seed, err, got, refused, want)
		}
		if err == nil {
			written++
		}
	}
	if written < 1_000 {
		t.Errorf("only %d outcomes could be written at all", written)
	}
}

func TestAReservationIsWrittenWithoutReflection(t *testing.T) {
	at := time.Date(2026, 12, 1, 10, 0, 0, 123_000, time.UTC)
	o := &holdfast.Outcome{
		Changed: true,
		Reservation: &holdfast.Reservation{
			Feature: "image.generate", Quantity: 1, State: holdfast.Reserved, Price: holdfast.Price{Unit: "credit", Amount: 5},
			Allocations: []holdfast.Allocation{{Source: holdfast.FromPurchase, Reserved: 5}}, Reserved: 5, Key: "m991",
			Metadata: map[string]string{"chat": "42"}, CatalogVersion: 7, TTL: time.Minute, CreatedAt: at, ExpiresAt: at.Add(time.Minute),
		},
		Balance: &holdfast.Balance{Unit: "credit", Available: 5, Cycle: &holdfast.CycleNumbers{Granted: 3}},
	}
	w := writer{}
	w.outcome(o)
	want, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	if w.failed || string(w.text) != string(want) {
		t.Errorf("%t %s\nwanted %s", w.failed, w.text, want)
	}
}

func BenchmarkAnOutcome(b *testing.B) {
	at := time.Date(2026, 12, 1, 10, 0, 0, 123_000, time.UTC)
	o := &holdfast.Outcome{
		Changed: true,
		Reservation: &holdfast.Reservation{
			Feature: "image.generate", Quantity: 1, State: holdfast.Reserved, Price: holdfast.Price{Unit: "credit", Amount: 5},
			Allocations: []holdfast.Allocation{{Source: holdfast.FromPurchase, Reserved: 5}}, Reserved: 5, Key: "m991",
			CatalogVersion: 7, TTL: time.Minute, CreatedAt: at, ExpiresAt: at.Add(time.Minute),
		},
		Balance: &holdfast.Balance{Unit: "credit", Available: 5},
	}
	b.Run("package json", func(b *testing.B) {
		for b.Loop() {
			if _, err := json.Marshal(o); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("here", func(b *testing.B) {
		for b.Loop() {
			if _, err := PackOutcome(o); err != nil {
				b.Fatal(err)
			}
		}
	})
}
