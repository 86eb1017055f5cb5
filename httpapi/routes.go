package httpapi

import (
	"net/http"
	"slices"

	"github.com/holdfast-dev/holdfast"
)

// route is one row of the table: all that is known of a call. The ServeMux, the checks and the document are made from it.
type route struct {
	method, path string
	scope        string // empty: no key is needed
	operation    string // the name of the call in clients
	op           string // its name in a batch; empty: no batch takes it
	tag          string
	summary      string
	keyed        keyed
	parameters   []parameter
	answers      []outcome
	reasons      []holdfast.Reason // of a no, beside the accidents that every call can meet
	does         action
}

// action is what a route does: it runs, or it is one command.
type action struct {
	body any  // a pointer to what it reads; nil: it reads no fields
	yaml bool // it reads a catalog
	// update: it reads an update of the Bot API, of which the fields that matter are known and all others are passed over.
	update bool
	run    func(*call) answer

	// command reads one, and encode tells what became of it. A command may come alone, or as an item of a batch.
	command func(*call) (holdfast.Command, *answer)
	encode  func(*call, *holdfast.Outcome) answer
}

// outcome is a status that is no problem, and what its body can be.
type outcome struct {
	status  int
	about   string
	bodies  []any
	content string // of what is no JSON
}

// keyed says what an Idempotency-Key is to a route. The core demands it; the document tells it.
type keyed int

const (
	keyless keyed = iota
	keyOptional
	keyRequired
)

// The tags, in the order of the page.
const (
	tagReservations = "Reservations"
	tagQueues       = "Queues"
	tagAccounts     = "Accounts"
	tagPayments     = "Payments"
	tagTelegram     = "Telegram"
	tagCatalog      = "Catalog"
	tagEvents       = "Events"
	tagInstance     = "Instance"
	tagOperations   = "Operations"
)

// routes is every call of the API, in the order of the document.
func routes() []route {
	get, put, post, remove := http.MethodGet, http.MethodPut, http.MethodPost, http.MethodDelete
	ok := func(bodies ...any) []outcome {
		return []outcome{{status: http.StatusOK, about: "Done", bodies: bodies}}
	}
	ended := func(more ...holdfast.Reason) []holdfast.Reason {
		return append([]holdfast.Reason{holdfast.NotFound, holdfast.AlreadyEnded}, more...)
	}

	refusals := []holdfast.Reason{
		holdfast.AccountBlocked, holdfast.SubscriptionInactive, holdfast.FeatureNotInPlan, holdfast.Insufficient, holdfast.HeldByActive, holdfast.TooManyActive,
	}

	return slices.Concat([]route{
		{
			method: post, path: "/v1/reservations", scope: ScopeWork, operation: "reserve", op: "reserve", tag: tagReservations, keyed: keyRequired,
			summary: "Reserve what work will cost before it exists",
			answers: []outcome{
				{status: http.StatusCreated, about: "Reserved", bodies: []any{Reservation{}}},
				{status: http.StatusOK, about: "A dry run: what would happen", bodies: []any{Allowed{}, Denied{}}},
			},
			reasons: refusals, does: byBody(reserve, reserved),
		},
		{
			method: post, path: "/v1/charges", scope: ScopeWork, operation: "charge", op: "charge", tag: tagReservations, keyed: keyRequired,
			summary: "Reserve and commit in one, for usage that needs no job in between",
			answers: []outcome{
				{status: http.StatusCreated, about: "Charged", bodies: []any{Settled{}}},
				{status: http.StatusOK, about: "A dry run: what would happen", bodies: []any{Allowed{}, Denied{}}},
			},
			reasons: refusals, does: byBody(charge, charged),
		},
		{
			method: get, path: "/v1/reservations", scope: ScopeRead, operation: "listReservations", tag: tagReservations,
			summary: "List an account's reservations, newest first", parameters: []parameter{byAccount, byState, byKey, byLimit, byCursor},
			answers: ok(ReservationList{}), reasons: []holdfast.Reason{holdfast.NotFound}, does: action{run: listReservations},
		},
		{
			method: get, path: "/v1/reservations/{id}", scope: ScopeRead, operation: "getReservation", tag: tagReservations,
			summary: "Show a reservation",
			answers: ok(Reservation{}), reasons: []holdfast.Reason{holdfast.NotFound}, does: action{run: getReservation},
		},
		{
			method: post, path: "/v1/reservations/{id}/start", scope: ScopeWork, operation: "start", op: "start", tag: tagReservations, keyed: keyOptional,
			summary: "Take the lease of a reservation to work on it",
			answers: ok(Started{}), reasons: ended(holdfast.AlreadyRunning), does: onReservation(start, started),
		},
		{
			method: post, path: "/v1/reservations/{id}/heartbeat", scope: ScopeWork, operation: "heartbeat", op: "heartbeat", tag: tagReservations, keyed: keyOptional,
			summary: "Keep the lease, and learn whether to stop",
			answers: ok(Reservation{}), reasons: ended(holdfast.StaleLease), does: onReservation(heartbeat, beaten),
		},
		{
			method: post, path: "/v1/reservations/{id}/commit", scope: ScopeWork, operation: "commit", op: "commit", tag: tagReservations, keyed: keyOptional,
			summary: "Charge what was used; without a figure, all that was reserved at a fixed price",
			answers: ok(Settled{}), reasons: ended(holdfast.StaleLease), does: onReservation(commit, settled),
		},
		{
			method: post, path: "/v1/reservations/{id}/extend", scope: ScopeWork, operation: "extend", op: "extend", tag: tagReservations, keyed: keyOptional,
			summary: "Hold for longer, or hold more, at the price it was made for",
			answers: ok(ReservationChanged{}),
			reasons: ended(holdfast.StaleLease, holdfast.AccountBlocked, holdfast.SubscriptionInactive, holdfast.FeatureNotInPlan, holdfast.Insufficient, holdfast.HeldByActive),
			does:    onReservation(extend, changedReservation),
		},
		{
			method: post, path: "/v1/reservations/{id}/release", scope: ScopeWork, operation: "release", op: "release", tag: tagReservations, keyed: keyOptional,
			summary: "Charge nothing and give everything back, or give its job back for another attempt",
			answers: ok(Settled{}, ReservationChanged{}), reasons: ended(holdfast.StaleLease), does: onReservation(release, released),
		},
		{
			method: post, path: "/v1/reservations/{id}/cancel", scope: ScopeWork, operation: "cancel", op: "cancel", tag: tagReservations, keyed: keyOptional,
			summary: "Take back a reservation that nobody has started, or ask its worker to stop",
			answers: append(ok(Settled{}), outcome{status: http.StatusAccepted, about: "It runs: its worker is asked to stop", bodies: []any{ReservationChanged{}}}),
			reasons: ended(holdfast.AlreadyRunning), does: onReservation(cancel, cancelled),
		},
		{
			method: post, path: "/v1/reservations/{id}/in_doubt", scope: ScopeWork, operation: "inDoubt", op: "in_doubt", tag: tagReservations, keyed: keyOptional,
			summary: "Mark work of which its worker does not know whether it happened",
			answers: ok(ReservationChanged{}), reasons: ended(holdfast.StaleLease), does: onReservation(inDoubt, changedReservation),
		},
		{
			method: post, path: "/v1/reservations/{id}/refund", scope: ScopeMoney, operation: "refund", op: "refund", tag: tagReservations, keyed: keyRequired,
			summary: "Give a charge back, whole or in parts",
			answers: ok(Refunded{}), reasons: []holdfast.Reason{holdfast.NotFound, holdfast.NotCommitted, holdfast.RefundExceedsUsed},
			does: onReservation(refund, refunded),
		},
		{
			method: post, path: "/v1/reservations/{id}/force", scope: ScopeAdmin, operation: "force", op: "force", tag: tagReservations, keyed: keyOptional,
			summary: "End a stuck reservation without its lease",
			answers: ok(Settled{}), reasons: ended(), does: onReservation(force, settled),
		},
		{
			method: post, path: "/v1/batch", scope: scopeOfEach, operation: "batch", tag: tagReservations,
			summary: "Do many things in one request",
			answers: []outcome{{status: http.StatusOK, about: "What became of each, in their order", bodies: []any{BatchResults{}}}},
			does:    action{body: new(batchBody), run: batch},
		},
		{
			method: post, path: "/v1/queues/{queue}/claim", scope: ScopeWork, operation: "claim", tag: tagQueues,
			summary: "Take jobs to work on, the oldest first; where there is none, wait for one",
			answers: ok(Jobs{}), reasons: []holdfast.Reason{reasonOverloaded}, does: action{body: new(claimBody), run: claim},
		},
		{
			method: put, path: "/v1/accounts/{account}", scope: ScopeWork, operation: "putAccount", op: "put_account", tag: tagAccounts, keyed: keyOptional,
			summary: "Create an account, or change what is given",
			answers: ok(AccountChanged{}), reasons: []holdfast.Reason{holdfast.AccountBlocked}, does: onAccount(putAccount, accountChanged),
		},
		{
			method: get, path: "/v1/accounts/{account}", scope: ScopeRead, operation: "getAccount", tag: tagAccounts,
			summary: "Show what an account has, or would have", answers: ok(Account{}), does: action{run: getAccount},
		},
		{
			method: remove, path: "/v1/accounts/{account}", scope: ScopeAdmin, operation: "deleteAccount", tag: tagAccounts, keyed: keyOptional,
			summary: "End what an account has running and erase what is personal about it; its ledger stays",
			answers: ok(AccountChanged{}), reasons: []holdfast.Reason{holdfast.NotFound}, does: onAccount(deleteAccount, accountChanged),
		},
		{
			method: get, path: "/v1/accounts/{account}/grants", scope: ScopeRead, operation: "listGrants", tag: tagAccounts,
			summary: "List an account's grants, newest first", parameters: []parameter{byLimit, byCursor},
			answers: ok(GrantList{}), reasons: []holdfast.Reason{holdfast.NotFound}, does: action{run: listGrants},
		},
		{
			method: post, path: "/v1/accounts/{account}/grants", scope: ScopeMoney, operation: "addGrant", op: "grant", tag: tagAccounts, keyed: keyRequired,
			summary: "Give an amount to an account",
			answers: []outcome{{status: http.StatusCreated, about: "Granted", bodies: []any{Credited{}}}},
			reasons: []holdfast.Reason{holdfast.NotFound, holdfast.AccountBlocked}, does: onAccount(addGrant, credited),
		},
		{
			method: post, path: "/v1/accounts/{account}/adjustments", scope: ScopeMoney, operation: "adjust", op: "adjustment", tag: tagAccounts, keyed: keyRequired,
			summary: "Correct a balance by hand, up or down",
			answers: []outcome{{status: http.StatusCreated, about: "Corrected", bodies: []any{Credited{}}}},
			reasons: []holdfast.Reason{holdfast.NotFound, holdfast.AccountBlocked, holdfast.Insufficient}, does: onAccount(adjust, credited),
		},
		{
			method: get, path: "/v1/accounts/{account}/entries", scope: ScopeRead, operation: "listEntries", tag: tagAccounts,
			summary: "Read an account's history, newest first", parameters: []parameter{byLimit, byCursor},
			answers: ok(EntryList{}), reasons: []holdfast.Reason{holdfast.NotFound}, does: action{run: listEntries},
		},
		{
			method: get, path: "/v1/accounts/{account}/entries.csv", scope: ScopeRead, operation: "exportEntries", tag: tagAccounts,
			summary: "Read an account's whole history as a table, newest first",
			answers: []outcome{{status: http.StatusOK, about: "A row for each entry, below a row of names", content: csvContent}},
			reasons: []holdfast.Reason{holdfast.NotFound}, does: action{run: exportEntries},
		},
		{
			method: get, path: "/v1/accounts/{account}/balance", scope: ScopeRead, operation: "getBalance", tag: tagAccounts,
			summary: "Show what an account was believed to have at a moment", parameters: []parameter{asOf},
			answers: ok(Balances{}), reasons: []holdfast.Reason{reasonOverloaded}, does: action{run: getBalance},
		},
		{
			method: get, path: "/v1/accounts/{account}/explain", scope: ScopeRead, operation: "explain", tag: tagAccounts,
			summary: "Say step by step why a reserve would be granted or refused", parameters: []parameter{ofFeature, ofQuantity, ofUsage},
			answers: ok(Explanation{}), reasons: []holdfast.Reason{reasonOverloaded}, does: action{run: explain},
		},
		{
			method: post, path: "/v1/accounts/{account}/subscription", scope: ScopeMoney, operation: "setPlan", tag: tagAccounts, keyed: keyOptional,
			summary: "Put an account on a plan without a payment",
			answers: ok(AccountChanged{}), reasons: []holdfast.Reason{holdfast.NotFound, holdfast.AccountBlocked}, does: onAccount(setPlan, accountChanged),
		},
		{
			method: post, path: "/v1/accounts/{account}/subscription/change", scope: ScopeMoney, operation: "changePlan", op: "change_plan", tag: tagAccounts, keyed: keyOptional,
			summary: "Change the plan of what is paid for, now or at its end",
			answers: ok(AccountChanged{}), reasons: []holdfast.Reason{holdfast.NotFound, holdfast.SubscriptionInactive}, does: onAccount(changePlan, accountChanged),
		},
		{
			method: post, path: "/v1/accounts/{account}/subscription/cancel", scope: ScopeMoney, operation: "cancelSubscription", op: "cancel_subscription", tag: tagAccounts, keyed: keyOptional,
			summary: "Let a subscription end with what is paid",
			answers: ok(AccountChanged{}), reasons: []holdfast.Reason{holdfast.NotFound, holdfast.SubscriptionInactive}, does: onAccount(cancelSubscription, accountChanged),
		},
		{
			method: post, path: "/v1/accounts/{account}/subscription/resume", scope: ScopeMoney, operation: "resumeSubscription", op: "resume_subscription", tag: tagAccounts, keyed: keyOptional,
			summary: "Take the cancellation of a subscription back",
			answers: ok(AccountChanged{}), reasons: []holdfast.Reason{holdfast.NotFound, holdfast.SubscriptionInactive}, does: onAccount(resumeSubscription, accountChanged),
		},
		{
			method: post, path: "/v1/accounts/{account}/aliases", scope: ScopeMoney, operation: "addAlias", tag: tagAccounts, keyed: keyOptional,
			summary: "Let a further name mean an account",
			answers: []outcome{
				{status: http.StatusCreated, about: "Linked", bodies: []any{Linked{}}},
				{status: http.StatusOK, about: "It was linked already", bodies: []any{Linked{}}},
			},
			reasons: []holdfast.Reason{holdfast.NotFound, holdfast.AccountExists, holdfast.AccountBlocked}, does: onNames(alias, linked),
		},
		{
			method: post, path: "/v1/accounts/{account}/merge", scope: ScopeMoney, operation: "merge", tag: tagAccounts, keyed: keyRequired,
			summary: "Take another account in, with all that it has; its name then means this one",
			answers: ok(AccountChanged{}),
			reasons: []holdfast.Reason{holdfast.NotFound, holdfast.AccountBlocked}, does: onNames(merged, accountChanged),
		},
		{
			method: post, path: "/v1/payments", scope: ScopeMoney, operation: "pay", tag: tagPayments,
			summary: "Grant what a completed payment has bought, once per provider and payment",
			answers: []outcome{
				{status: http.StatusCreated, about: "Granted", bodies: []any{PaymentChanged{}}},
				{status: http.StatusOK, about: "It was known already, or it is flagged: nothing was granted", bodies: []any{PaymentChanged{}}},
			},
			reasons: []holdfast.Reason{holdfast.NotFound}, does: action{body: new(paymentBody), command: takePayment, encode: paid},
		},
		{
			method: get, path: "/v1/payments/{provider}/{payment_id}", scope: ScopeRead, operation: "getPayment", tag: tagPayments,
			summary: "Show a payment",
			answers: ok(Payment{}), reasons: []holdfast.Reason{holdfast.NotFound, reasonOverloaded}, does: action{run: getPayment},
		},
		{
			method: post, path: "/v1/payments/{provider}/{payment_id}/refunds", scope: ScopeMoney, operation: "refundPayment", tag: tagPayments,
			summary: "Take back what a refunded payment had granted, once per refund",
			answers: []outcome{
				{status: http.StatusCreated, about: "Refunded", bodies: []any{PaymentChanged{}}},
				{status: http.StatusOK, about: "This refund was known already", bodies: []any{PaymentChanged{}}},
				{status: http.StatusAccepted, about: "The payment is not known yet: applied when it arrives", bodies: []any{PaymentPending{}}},
			},
			reasons: []holdfast.Reason{holdfast.NotFound}, does: action{body: new(paymentRefundBody), command: refundPayment, encode: refundedPayment},
		},
		{
			method: post, path: "/v1/telegram/{bot}/orders", scope: ScopeMoney, operation: "telegramOrder", tag: tagTelegram,
			summary: "Make an order for Telegram Stars, and what its invoice is made of", parameters: []parameter{asProvider},
			answers: []outcome{{status: http.StatusCreated, about: "Made", bodies: []any{TelegramOrder{}}}},
			reasons: []holdfast.Reason{holdfast.NotFound}, does: action{body: new(telegramOrderBody), run: telegramOrder},
		},
		{
			method: post, path: "/v1/telegram/{bot}/updates", scope: ScopeMoney, operation: "telegramUpdate", tag: tagTelegram,
			summary: "Take an update of the Bot API as it came, and say what is to be called there", parameters: []parameter{asProvider},
			answers: ok(TelegramUpdate{}), reasons: []holdfast.Reason{holdfast.NotFound, reasonOverloaded, reasonUnknown}, does: action{update: true, run: telegramUpdate},
		},
		{
			method: post, path: "/v1/telegram/{bot}/done", scope: ScopeMoney, operation: "telegramDone", tag: tagTelegram,
			summary: "Tell that an action was called at the Bot API", parameters: []parameter{asProvider},
			answers: ok(TelegramDone{}), reasons: []holdfast.Reason{holdfast.NotFound}, does: action{body: new(telegramDoneBody), run: telegramDone},
		},
		{
			method: get, path: "/v1/catalog", scope: ScopeRead, operation: "getCatalog", tag: tagCatalog,
			summary: "Show the catalog that is in force",
			answers: ok(Catalog{}), reasons: []holdfast.Reason{holdfast.NotFound}, does: action{run: getCatalog},
		},
		{
			method: put, path: "/v1/catalog", scope: ScopeAdmin, operation: "putCatalog", tag: tagCatalog,
			summary: "Put a new version of the catalog in force, whole or not at all",
			answers: []outcome{
				{status: http.StatusCreated, about: "A new version", bodies: []any{CatalogChanged{}}},
				{status: http.StatusOK, about: "The same content as before", bodies: []any{CatalogChanged{}}},
			},
			reasons: []holdfast.Reason{holdfast.NotFound, reasonInUse, reasonVersionChanged, reasonVersionRequired},
			does:    action{yaml: true, run: putCatalog},
		},
		{
			method: post, path: "/v1/projects", scope: scopeInstance, operation: "addProject", tag: tagInstance,
			summary: "Make a project",
			answers: []outcome{
				{status: http.StatusCreated, about: "Made", bodies: []any{Project{}}},
				{status: http.StatusOK, about: "It was there already", bodies: []any{Project{}}},
			},
			does: action{body: new(projectBody), run: addProject},
		},
		{
			method: post, path: "/v1/keys", scope: scopeInstance, operation: "addKey", tag: tagInstance,
			summary: "Make a key of a project; its secret is shown this once",
			answers: []outcome{{status: http.StatusCreated, about: "Made", bodies: []any{KeyMade{}}}},
			does:    action{body: new(keyBody), run: addKey},
		},
		{
			method: remove, path: "/v1/keys/{id}", scope: scopeInstance, operation: "revokeKey", tag: tagInstance,
			summary: "Revoke a key",
			answers: []outcome{{status: http.StatusNoContent, about: "Revoked"}},
			reasons: []holdfast.Reason{holdfast.NotFound}, does: action{run: revokeKey},
		},
		{
			method: get, path: "/healthz", operation: "health", tag: tagOperations,
			summary: "Whether the process lives", answers: ok(Health{}), does: action{run: healthy},
		},
		{
			method: get, path: "/readyz", operation: "ready", tag: tagOperations,
			summary: "Whether commands can be decided now", answers: ok(Health{}),
			reasons: []holdfast.Reason{reasonUnavailable}, does: action{run: ready},
		},
		{
			method: get, path: "/openapi.json", operation: "document", tag: tagOperations,
			summary: "This document", answers: ok(map[string]any{}), does: action{run: showDocument},
		},
		{
			method: get, path: "/docs", operation: "docs", tag: tagOperations, summary: "This document as a page",
			answers: []outcome{{status: http.StatusOK, about: "A page", content: htmlContent}}, does: action{run: showDocs},
		},
	}, eventRoutes())
}

// mayMeet is every reason that a call can be answered with.
func (r *route) mayMeet() []holdfast.Reason {
	if r.scope == "" {
		return slices.Concat(r.reasons, []holdfast.Reason{reasonInternal})
	}
	reasons := []holdfast.Reason{holdfast.Invalid, reasonUnauthorized, reasonScope, reasonRateLimited}
	if r.scope == scopeOfEach {
		reasons = slices.DeleteFunc(reasons, func(reason holdfast.Reason) bool { return reason == reasonScope })
	}
	if r.scope == scopeInstance {
		reasons = []holdfast.Reason{holdfast.Invalid, reasonUnauthorized}
	}
	if r.does.body != nil || r.does.yaml || r.does.update {
		reasons = append(reasons, reasonTooLarge)
	}
	if r.does.command != nil {
		reasons = append(reasons, reasonOverloaded, reasonUnknown)
	}
	if r.keyed != keyless {
		reasons = append(reasons, holdfast.KeyReused)
	}
	return slices.Concat(reasons, r.reasons, []holdfast.Reason{reasonInternal, reasonUnavailable})
}

func healthy(*call) answer { return answer{status: http.StatusOK, body: Health{Status: "ok"}} }

func ready(c *call) answer {
	if err := c.api.Engine.Ready(c.context()); err != nil {
		// Whatever keeps it from being ready, a probe is to ask again.
		a := c.accident(holdfast.Outcome{Reason: reasonUnavailable})
		a.cause = err
		return a
	}
	return answer{status: http.StatusOK, body: Health{Status: "ok"}}
}

func showDocument(c *call) answer {
	return answer{status: http.StatusOK, raw: c.api.document, content: jsonContent}
}

func showDocs(c *call) answer {
	a := answer{status: http.StatusOK, raw: c.api.docs.html, content: htmlContent}
	return a.with("Content-Security-Policy", c.api.docs.policy)
}
