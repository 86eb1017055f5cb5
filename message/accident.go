package message

import "slices"

// Accident says why a command could not be answered at all. The words are those of the API.
type Accident string

// The accidents. None of their texts says that nothing was charged: that is known of an ended reservation only.
const (
	Unavailable    Accident = "unavailable"
	Overloaded     Accident = "overloaded"
	OutcomeUnknown Accident = "outcome_unknown"
	Unauthorized   Accident = "unauthorized"
	Scope          Accident = "scope"
	TooLarge       Accident = "too_large"
	Internal       Accident = "internal"
)

// Accidents lists every accident that has texts.
func Accidents() []Accident {
	return []Accident{Unavailable, Overloaded, OutcomeUnknown, Unauthorized, Scope, TooLarge, Internal}
}

// sentence is the name of the accident's text. One that has none is told as our fault, which it then is.
func (a Accident) sentence() string {
	if !slices.Contains(Accidents(), a) {
		a = Internal
	}
	return "accident." + string(a)
}
