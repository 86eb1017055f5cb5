package inbox

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/holdfast-dev/holdfast/store"
)

const (
	secretHeader = "X-Telegram-Bot-Api-Secret-Token"
	// An update is some kilobytes; what moves money is less than one.
	maxBody  = 1 << 20
	storeFor = 10 * time.Second
	// Telegram asks again after this many seconds, where the database cannot be used.
	retryAfter = "5"
)

// ServeHTTP is the webhook. It answers 200 when the update is stored, 401 without the right secret, and 503 where the update
// could not be stored, after which Telegram tells it again. What can never be stored is answered with 200 and logged: an
// update that is refused holds up the others of its chat for a day.
func (in *Inbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	if !in.authentic(r.Header.Get(secretHeader)) {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var tooLarge *http.MaxBytesError
	if err != nil && !errors.As(err, &tooLarge) {
		w.WriteHeader(http.StatusBadRequest) // it broke off, and comes again
		return
	}
	t, malformed := read(body)
	if err != nil || malformed != nil {
		in.options.Logger.Error("what came by the webhook is not an update and is dropped", "bytes", len(body))
		w.WriteHeader(http.StatusOK)
		return
	}
	// A sender that hangs up does not make an update half stored.
	storing, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), storeFor)
	defer cancel()
	switch err := in.take(storing, []told{t}); {
	case err == nil:
		w.WriteHeader(http.StatusOK)
	case store.KindOf(err) == store.Rejected:
		in.options.Logger.Error("an update cannot be stored and is dropped", "update", t.id, "kind", t.kind, "error", err)
		w.WriteHeader(http.StatusOK)
	default:
		in.options.Logger.Warn("an update could not be stored and will be sent again", "update", t.id, "kind", t.kind, "error", err)
		w.Header().Set("Retry-After", retryAfter)
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// authentic compares digests, so that neither the secret nor its length shows in the time it takes.
func (in *Inbox) authentic(secret string) bool {
	given, wanted := sha256.Sum256([]byte(secret)), sha256.Sum256([]byte(in.options.Secret))
	return in.options.Secret != "" && subtle.ConstantTimeCompare(given[:], wanted[:]) == 1
}
