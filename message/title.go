package message

import "github.com/holdfast-dev/holdfast"

// Titles are for programs and logs, part of the API, and the same in every language: they stay as they are.
var (
	titles = map[holdfast.Reason]string{
		holdfast.Invalid:              "Invalid request",
		holdfast.KeyReused:            "Key reused",
		holdfast.NotFound:             "Not found",
		holdfast.AlreadyEnded:         "Already ended",
		holdfast.NotCommitted:         "Not committed",
		holdfast.RefundExceedsUsed:    "Refund exceeds the charge",
		holdfast.AccountExists:        "Account exists",
		holdfast.StaleLease:           "Stale lease",
		holdfast.AlreadyRunning:       "Already running",
		holdfast.AccountBlocked:       "Account blocked",
		holdfast.SubscriptionInactive: "Subscription inactive",
		holdfast.FeatureNotInPlan:     "Feature not in plan",
		holdfast.Insufficient:         "Insufficient balance",
		holdfast.HeldByActive:         "Held by active work",
		holdfast.TooManyActive:        "Too many active",
	}
	accidentTitles = map[Accident]string{
		Unavailable:    "Temporarily unavailable",
		Overloaded:     "Overloaded",
		OutcomeUnknown: "Outcome unknown",
		Unauthorized:   "Unauthorized",
		Scope:          "Key lacks the scope",
		TooLarge:       "Request too large",
		Internal:       "Internal error",
	}
)

// Title is the short name of a reason, as in the title of a problem document: English, and stable. Only a reason that is
// not one of holdfast.Reasons is told as "Refused".
func (t *Texts) Title(reason holdfast.Reason) string {
	if title, ok := titles[reason]; ok {
		return title
	}
	return "Refused"
}

// AccidentTitle is the same for an accident; an unknown one is told as "Internal error".
func (t *Texts) AccidentTitle(accident Accident) string {
	if title, ok := accidentTitles[accident]; ok {
		return title
	}
	return accidentTitles[Internal]
}
