package bench

import "time"

// history is how many finished reservations are loaded, over how many accounts, the hot one first.
type history struct {
	model       *account // whose recorded answer is repeated
	accounts    int
	from, until int // numbers of the first and behind the last reservation; those before are there already
	at          time.Time
}

// chunk is how many are loaded in one transaction.
const chunk = 100_000

// inChunks calls load for the history, some at a time.
func (h history) inChunks(load func(count, first int) error) error {
	for first := h.from; first < h.until; first += chunk {
		if err := load(min(chunk, h.until-first), first); err != nil {
			return err
		}
	}
	return nil
}
