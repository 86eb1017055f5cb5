package holdfast

// Reason says why a command was not done. The empty reason means it was. Reasons are values, part of the API, and are
// never reused for another meaning.
type Reason string

// The reasons, in the order in which they win: a command that is wrong in two ways gets the earlier one.
const (
	Invalid           Reason = "invalid"
	KeyReused         Reason = "key_reused"
	NotFound          Reason = "not_found"
	AlreadyEnded      Reason = "already_ended"
	NotCommitted      Reason = "not_committed"
	RefundExceedsUsed Reason = "refund_exceeds_used"
	// AccountExists: the name belongs to an account of its own.
	AccountExists  Reason = "account_exists"
	StaleLease     Reason = "stale_lease"
	AlreadyRunning Reason = "already_running"
	AccountBlocked Reason = "account_blocked"
	// SubscriptionInactive: the plan that lapsed had the feature, the current one has not; or nothing paid is running.
	SubscriptionInactive Reason = "subscription_inactive"
	FeatureNotInPlan     Reason = "feature_not_in_plan"
	Insufficient         Reason = "insufficient"
	HeldByActive         Reason = "held_by_active"
	TooManyActive        Reason = "too_many_active"
)

// ReasonInfo describes one reason for people and for the reference page.
type ReasonInfo struct {
	Reason Reason
	// Recorded reports whether the answer is kept under the command's key and repeated. Accidents are not.
	Recorded bool
	Meaning  string
}

// Reasons lists every reason in order of precedence.
func Reasons() []ReasonInfo {
	return []ReasonInfo{
		{Invalid, false, "The request is malformed; every offending field is named."},
		{KeyReused, false, "The key was used before for another request. Send a new key for a new intention."},
		{NotFound, false, "Nothing of this name or id exists in the project."},
		{AlreadyEnded, true, "The reservation ended before, in another way or with another figure. It stays as it is."},
		{NotCommitted, true, "Only a reservation that was charged can be refunded."},
		{RefundExceedsUsed, true, "Refunds of a reservation add up to at most what it was charged."},
		{AccountExists, true, "The name belongs to an account of its own: merge it instead of making an alias of it."},
		{StaleLease, true, "The lease token is missing or wrong, was replaced by another worker's start, or none was given out yet."},
		{AlreadyRunning, true, "Another worker holds the lease, or the work has begun and may not be cancelled."},
		{AccountBlocked, true, "The account is blocked: it may not begin new work. Running work may end."},
		{SubscriptionInactive, true, "The subscription has ended: its plan had the feature, the current one has not. Of a change: nothing paid is running."},
		{FeatureNotInPlan, true, "The account's plan does not have the feature."},
		{Insufficient, true, "Not enough, even if everything that running work holds came back."},
		{HeldByActive, true, "Running work holds what is missing; it comes back if that work fails."},
		{TooManyActive, true, "Paid for, but every slot of the plan is taken by active work."},
	}
}

// Recorded reports whether an answer with this reason is kept under its key.
func (r Reason) Recorded() bool {
	if r == "" {
		return true
	}
	for _, info := range Reasons() {
		if info.Reason == r {
			return info.Recorded
		}
	}
	return false
}

// Problem is one thing wrong with a request: the field's path as the caller wrote it, and what to write instead.
// It never repeats the offending value.
type Problem struct {
	Field string `json:"field"`
	Hint  string `json:"hint"`
}
