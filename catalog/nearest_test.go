package catalog

import "testing"

func TestTheNearestWordIsASlipAwayOrNone(t *testing.T) {
	known := []string{"names", "price", "longest_job", "longest_wait", "ttl"}
	for word, want := range map[string]string{
		"name": "names", "prize": "price", "pirce": "price", "longest_jobs": "longest_job", "longestwait": "longest_wait",
		"tl": "ttl", "tlt": "ttl", "TTL": "", "colour": "", "": "", "t": "", "xxxxx": "", "long": "",
	} {
		if got := nearest(word, known); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}

func TestDistanceCountsEverySlip(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"a", "", 1},
		{"", "abc", 3},
		{"ttl", "ttl", 0},
		{"tll", "ttl", 1},
		{"tlt", "ttl", 1},
		{"price", "prices", 1},
		{"kitten", "sitting", 3},
	} {
		if got := distance(c.a, c.b); got != c.want || distance(c.b, c.a) != got {
			t.Errorf("%q %q: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
