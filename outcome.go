package holdfast

import "time"

// Outcome is what a command came to. A refusal is a value here, never an error.
//
// Its JSON is how answers are recorded, so its field names are never changed for another meaning.
type Outcome struct {
	Reason   Reason    `json:",omitzero"` // empty: done
	Problems []Problem `json:",omitzero"` // of Invalid
	Refusal  *Refusal  `json:",omitzero"` // the numbers of a refused reserve or adjustment

	// Changed is false where everything was already as the command wants it.
	Changed bool `json:",omitzero"`
	// Replayed marks the repetition of a recorded answer.
	Replayed bool `json:"-"`
	// First marks a payment that was not known before.
	First bool `json:",omitzero"`
	// DryRun marks the answer to a question: nothing was taken.
	DryRun bool `json:"-"`

	// Owner is whose account was asked about, as it is now; empty where it is not known.
	Owner Owner `json:"-"`

	Reservation *Reservation `json:",omitzero"` // as it is after the command, also where it was refused
	Balance     *Balance     `json:",omitzero"` // of the unit concerned, after the command
	Lease       *Lease       `json:",omitzero"` // of a start or heartbeat
	Settlement  *Settlement  `json:",omitzero"` // of a commit, release, cancel, forced end or refund
	Grant       *Grant       `json:",omitzero"` // of an added grant or a positive adjustment
	Account     *AccountView `json:",omitzero"` // of a changed account
	Payment     *Payment     `json:",omitzero"` // of a payment or its refund

	// Redirect asks the engine to have the command decided for the account that took this one's place.
	Redirect AccountID `json:"-"`

	// Again asks the engine to save what was changed and to decide this command once more: more overdue reservations
	// stand in its way than were loaded.
	Again bool `json:"-"`
}

// Owner is what an answer needs to know of an account to name it and to speak to its person.
type Owner struct {
	ID                       AccountID // with a reservation's id it makes the public one
	Name, Language, TimeZone string
	Merged                   bool // another account has taken its place, and has what it had
}

// Lease is what a worker gets.
type Lease struct {
	Token     string    `json:",omitzero"`
	ExpiresAt time.Time `json:",omitzero"`
}

// Settlement says where the reserved amount went: used + Returned + Voided = reserved.
type Settlement struct {
	Returned Amount `json:",omitzero"` // back in the pockets it came from
	Voided   Amount `json:",omitzero"` // came back to a pocket that had ended, and ended with it
	Unbilled Amount `json:",omitzero"` // reported, and not charged
	Late     bool   `json:",omitzero"` // charged after expiry
	// MayContinue is false when the right has ended meanwhile: a finishing job starts nothing new.
	MayContinue bool `json:",omitzero"`
}

// Refusal holds all numbers of a "no". The text is composed from them when answering.
type Refusal struct {
	Feature      string        `json:",omitzero"`
	Unit         string        `json:",omitzero"`
	Needed       Amount        `json:",omitzero"`
	Available    Amount        `json:",omitzero"`
	Held         Amount        `json:",omitzero"` // by reservations, and back if they fail
	Active       int           `json:",omitzero"`
	MaxActive    int           `json:",omitzero"`
	Plan         string        `json:",omitzero"`
	Cycle        *CycleNumbers `json:",omitzero"`
	ResetsAt     time.Time     `json:",omitzero"` // zero: waiting does not help
	Plans        []string      `json:",omitzero"` // that would allow it
	Alternatives []Alternative `json:",omitzero"` // all of them, where the price has more than one
	// Estimated says that Needed is an upper bound: the price depends on usage. AffordableUsage is the most, in the same
	// proportions, that Available pays for.
	Estimated       bool              `json:",omitzero"`
	AffordableUsage map[string]Amount `json:",omitzero"`
}

// Alternative is one way to pay, and what there is of it.
type Alternative struct {
	Unit      string
	Needed    Amount
	Available Amount
	Held      Amount
}

// Balance is what the account has in one unit.
type Balance struct {
	Unit      string
	Available Amount
	Reserved  Amount
	Debt      Amount
	Cycle     *CycleNumbers `json:",omitzero"` // of the allowance that resets soonest; nil: the plan has none
	ResetsAt  time.Time     `json:",omitzero"`
}

// CycleNumbers are an allowance's current cycle. Zero times: it starts with the first allocation taken from it.
type CycleNumbers struct {
	Granted  Amount
	Used     Amount
	Reserved Amount
	Voided   Amount    `json:",omitzero"` // by corrections
	StartsAt time.Time `json:",omitzero"`
	EndsAt   time.Time `json:",omitzero"`
}

// ForgetPerson removes what is personal from a recorded answer.
func (o *Outcome) ForgetPerson() {
	if o.Reservation != nil {
		r := o.Reservation.clone()
		r.Metadata = nil
		o.Reservation = &r
	}
	if o.Account != nil {
		view := *o.Account
		view.Account.Name, view.Account.Language, view.Account.TimeZone, view.Account.Metadata = "", "", "", nil
		o.Account = &view
	}
}

// Refused reports whether the outcome is a "no" that may be asked again.
func (o *Outcome) Refused() bool { return o.Reason != "" }
