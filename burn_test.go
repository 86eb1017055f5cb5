package holdfast

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Each pocket loses to the one before it by one thing only, and would win by everything that comes after that thing.
func TestPocketsBurnByPriorityThenEndThenAgeThenID(t *testing.T) {
	noon := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	pockets := []*Grant{
		{ID: ID{9}, Priority: 10, CreatedAt: noon.Add(3 * time.Hour)},
		{ID: ID{8}, Priority: 40, EndsAt: noon, CreatedAt: noon.Add(2 * time.Hour)},
		{ID: ID{7}, Priority: 40, EndsAt: noon.Add(time.Second), CreatedAt: noon.Add(time.Hour)},
		{ID: ID{6}, Priority: 40, CreatedAt: noon},
		{ID: ID{1}, Priority: 40, CreatedAt: noon.Add(time.Second)},
		{ID: ID{2}, Priority: 40, CreatedAt: noon.Add(time.Second)},
	}
	rapid.Check(t, func(t *rapid.T) {
		shuffled := rapid.Permutation(pockets).Draw(t, "order")
		slices.SortFunc(shuffled, burnsBefore)
		if !slices.Equal(shuffled, pockets) {
			t.Errorf("sorted otherwise: %v", shuffled)
		}
	})
}
