package holdfast

import (
	"fmt"
	"time"
)

// Every bound of the product is here, with its reason. docs/reference/limits.md is compared with this file by a test.
const (
	MaxAmount = Amount(1<<53 - 1)

	MaxKeyBytes        = 255
	MaxNameBytes       = 128
	MaxProjectBytes    = 64
	MaxIdentifierBytes = 64
	MaxReasonBytes     = 500
	MaxWorkerBytes     = 128
	MaxTokenBytes      = 64
	MaxMetadataPairs   = 32
	MaxMetadataName    = 64
	MaxMetadataValue   = 512
	MaxUsageKinds      = 32
	MaxGrantFeatures   = 64
	MaxPaymentIDBytes  = 255
	MaxPaidPeriods     = 60
	MaxNames           = 8
	MaxAliases         = 256
	MaxGrantPriority   = 1000
	MaxOpenGrants      = 1000
	MaxBodyBytes       = 1 << 20
	MaxCatalogBytes    = 1 << 20
	MaxCatalogNames    = 1000
	MaxPage            = 200
	DefaultPage        = 50

	MinTTL       = time.Second
	MaxTTL       = 24 * time.Hour
	DefaultLease = 60 * time.Second
	MinLease     = 5 * time.Second
	MaxLease     = time.Hour
	// HoldFactor times the ttl is how long a reservation can be held in all, from its creation.
	HoldFactor = 4

	MaxOperations      = 500
	MaxKeyRate         = 100_000
	MaxBatch           = 500
	MaxQueue           = 20_000
	MaxQueuePerAccount = 2_000
	MaxOverdue         = 64
	MaxWaitedFor       = 16
	MaxQueueBytes      = 2*MaxIdentifierBytes + 1
	MaxPayloadBytes    = 64 << 10
	MaxAttempts        = 10
	DefaultAttempts    = 3
	KeptAttempts       = 20
	FirstRetryDelay    = time.Second
	MaxRetryDelay      = 60 * time.Second
	MaxClaim           = 50
	MaxClaimWait       = 50 * time.Second
	MaxScan            = 500
	MaxQuarantined     = 10_000

	MaxEndpoints        = 50
	MaxEndpointURL      = 2048
	MaxEndpointKinds    = 64
	MaxDeliveryAttempts = 16
	DeliverFor          = 3 * 24 * time.Hour
	KeepEvents          = 30 * 24 * time.Hour
	KeepQueued          = 90 * 24 * time.Hour

	AwayFor       = 24 * time.Hour
	RenewedSpread = 8 * time.Hour

	KeepAnswers = 90 * 24 * time.Hour
	RetryFor    = 10 * time.Second
	WarnSkew    = 5 * time.Second
	RefuseSkew  = 60 * time.Second
)

// Limit is one row of the reference of limits.
type Limit struct{ Name, Value, Reason string }

// Limits lists every bound in the order of the reference page.
func Limits() []Limit {
	n := func(v any) string { return fmt.Sprint(v) }
	return []Limit{
		{"amount, and the sum of an account's grants in one unit", "2^53-1 (" + n(int64(MaxAmount)) + ")", "the largest integer that every JSON reader keeps exact"},
		{"key", n(MaxKeyBytes) + " bytes, UTF-8, not blank", "holds any message id with room to spare, and fits an index entry"},
		{"account name", n(MaxNameBytes) + " bytes, UTF-8, no control characters, spaces or / ? # %", "readable in an address and in a log line"},
		{"project name", n(MaxProjectBytes) + " bytes of a-z 0-9 . _ -", "part of every account's id"},
		{"feature, unit, plan, surface, cause, usage kind", n(MaxIdentifierBytes) + " bytes of a-z 0-9 . _ -", "a word of the catalog, not a text"},
		{"reason of a grant, an adjustment, a refund, a forced end", n(MaxReasonBytes) + " bytes", "a sentence for whoever reads the history"},
		{"worker", n(MaxWorkerBytes) + " bytes", "a host and a process"},
		{"lease token", n(MaxTokenBytes) + " bytes", "longer than any token Holdfast gives out"},
		{"metadata", n(MaxMetadataPairs) + " pairs, names of " + n(MaxMetadataName) + " and values of " + n(MaxMetadataValue) + " bytes", "travels with every read of the reservation"},
		{"usage kinds", n(MaxUsageKinds), "more than any provider reports"},
		{"queue", n(MaxQueueBytes) + " bytes of a-z 0-9 . _ -", "a feature's queue, a dot, a plan's tier"},
		{"payload of a job", n(MaxPayloadBytes) + " bytes of JSON", "what to do and where the material is, not the material"},
		{"attempts at a job", "1 to " + n(MaxAttempts) + " (default " + n(DefaultAttempts) + ")", "a job that brought down so many workers would bring down the next"},
		{"attempts kept of a job", n(KeptAttempts), "more than count, since a claim that was given back unstarted does not"},
		{"delay of a job that was given back", FirstRetryDelay.String() + ", twice as long after each attempt that counts, at most " + MaxRetryDelay.String(), "whatever failed gets time to recover, and the job does not burn its attempts in a second"},
		{"jobs in one claim", "1 to " + n(MaxClaim), "no worker takes what others could begin"},
		{"wait of a claim", "at most " + MaxClaimWait.String(), "shorter than proxies keep a silent connection"},
		{"payment id, refund id", n(MaxPaymentIDBytes) + " bytes", "longer than any provider's"},
		{"paid periods of an account", n(MaxPaidPeriods) + ", the current one included", "five years of months; a payment beyond them is flagged"},
		{"accounts that were merged one into the other, in a row", n(MaxNames), "each request by the oldest name asks all of them in turn; a merge beyond that is refused, and the other way round it is not"},
		{"names that lead to an account, by an alias or a merge", n(MaxAliases), "loaded with every decision; all are told when it is deleted"},
		{"features of a grant", n(MaxGrantFeatures), "loaded with every decision of the account"},
		{"priority of a grant", "0 to " + n(MaxGrantPriority), "room between the defaults 10, 20, 30 and 40"},
		{"open grants of an account", n(MaxOpenGrants), "loaded with every decision; used up and ended grants do not count"},
		{"request body", n(MaxBodyBytes) + " bytes", "bounds memory per request"},
		{"catalog file", n(MaxCatalogBytes) + " bytes, " + n(MaxCatalogNames) + " names of a kind", "read whole and checked whole"},
		{"operations of a batch over HTTP", n(MaxOperations), "as many as one transaction takes"},
		{"rate limit of a key", "1 to " + n(MaxKeyRate) + " requests a second, and twice as many at once", "more than one server decides"},
		{"page of a list", n(MaxPage) + " (default " + n(DefaultPage) + ")", "one answer stays small"},
		{"ttl", MinTTL.String() + " to " + MaxTTL.String(), "shorter cannot be swept in time, longer is a subscription"},
		{"lease", MinLease.String() + " to " + MaxLease.String() + " (default " + DefaultLease.String() + ")", "a heartbeat a third of it apart still survives a pause"},
		{"hold of one reservation in all", n(HoldFactor) + " × ttl", "no heartbeat keeps money held for ever"},
		{"commands in one transaction", n(MaxBatch), "larger batches gained nothing and delay the first answer"},
		{"commands waiting", n(MaxQueue) + ", of one account " + n(MaxQueuePerAccount), "beyond it callers are told at once to come back"},
		{"accounts waited for at once", n(MaxWaitedFor), "each takes a connection; an account that another transaction holds delays nobody else"},
		{"overdue reservations loaded with a decision", n(MaxOverdue), "if more remain, they are expired and the command is decided again"},
		{"accounts in one scan of the sweeper", n(MaxScan), "bounded chunks, repeated until none is left"},
		{"quarantined accounts", n(MaxQuarantined), "more means that the store, not an account, is wrong: the engine stops"},
		{"endpoints of a project", n(MaxEndpoints) + ", each with at most " + n(MaxEndpointKinds) + " kinds of events", "looked over before every delivery"},
		{"address of an endpoint", n(MaxEndpointURL) + " bytes", "as long as any server takes one"},
		{"attempts to deliver an event", n(MaxDeliveryAttempts) + " in " + n(int(DeliverFor.Hours()/24)) + " days, then it is dead", "a weekend without a receiver is survived, and the account's next events are not held up for ever"},
		{"published events are kept", n(int(KeepEvents.Hours()/24)) + " days; those that an endpoint has still to be given, or are dead there, " + n(int(KeepQueued.Hours()/24)) + " days", "a consumer that was away catches up; an endpoint that nobody looks after does not fill the disk"},
		{"away, before a person is told that the allowance is there again", n(int(AwayFor.Hours())) + " hours, spread over " + n(int(RenewedSpread.Hours())) + " hours after it", "who was here a while ago knows; a bot may send some thirty messages a second"},
		{"recorded answers are kept", "at least " + n(int(KeepAnswers.Hours()/24)) + " days", "longer than any sender retries"},
		{"this clock behind the last decision, or away from the database's", "warned about from " + WarnSkew.String() + ", serving refused from " + RefuseSkew.String(), "no decision is earlier than the account's last, so a clock that was ahead would hold people up for as long"},
		{"retry of a conflict", RetryFor.String(), "then 503: a conflict is never a refusal"},
	}
}
