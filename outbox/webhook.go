package outbox

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

const (
	defaultAnswer   = 15 * time.Second // an attempt in all, names and connecting included
	mostAnswerBytes = 64 << 10         // read of an answer, so that the connection can be used again; more closes it
	mostHeaderBytes = 16 << 10
)

// sender posts events. It keeps nothing but connections.
type sender struct {
	encrypted, plain http.RoundTripper
	agent            string
	answerFor        time.Duration
}

func newSender(guard Guard, version string, answerFor time.Duration) *sender {
	transport := func(encrypted bool) *http.Transport {
		return &http.Transport{
			Proxy:       nil, // a proxy of the environment would connect to what the guard refuses
			DialContext: guard.dialer(encrypted), TLSHandshakeTimeout: connectFor, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12},
			ResponseHeaderTimeout: answerFor, MaxResponseHeaderBytes: mostHeaderBytes,
			MaxIdleConns: mostAtOnce, MaxIdleConnsPerHost: mostPerEndpoint, IdleConnTimeout: 30 * time.Second, DisableCompression: true,
		}
	}
	return &sender{encrypted: transport(true), plain: transport(false), agent: "holdfast-webhooks/" + version, answerFor: answerFor}
}

// close lets idle connections go.
func (s *sender) close() {
	for _, t := range []http.RoundTripper{s.encrypted, s.plain} {
		if closer, ok := t.(interface{ CloseIdleConnections() }); ok {
			closer.CloseIdleConnections()
		}
	}
}

// result is what an attempt came to.
type result struct {
	status     int           // 0: no answer
	problem    string        // empty: the endpoint has the event
	retryAfter time.Duration // as the endpoint wishes; 0: it said nothing
}

// The problems, as deliveries show them.
const (
	problemStatus     = "status"          // an answer other than 2xx
	problemTimeout    = "timeout"         // no whole answer in time
	problemAddress    = "address_refused" // not public, and not allowed
	problemName       = "name_not_found"
	problemTLS        = "tls"
	problemConnection = "connection"
	problemEndpoint   = "endpoint" // what is stored of it cannot be used
)

// send posts one event, and follows nothing.
func (s *sender) send(ctx context.Context, to *store.Endpoint, event *Event, now time.Time) result {
	ctx, cancel := context.WithTimeout(ctx, s.answerFor)
	defer cancel()
	body, err := json.Marshal(event)
	if err != nil {
		return result{problem: problemEndpoint}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to.URL, bytes.NewReader(body))
	if err != nil {
		return result{problem: problemEndpoint}
	}
	signature, err := sign(to.Secrets, event.ID, now, body)
	if err != nil {
		return result{problem: problemEndpoint}
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", s.agent)
	request.Header.Set(headerID, event.ID)
	request.Header.Set(headerTimestamp, strconv.FormatInt(now.Unix(), 10))
	request.Header.Set(headerSignature, signature)
	transport := s.encrypted
	if request.URL.Scheme == "http" {
		transport = s.plain
	}
	answer, err := transport.RoundTrip(request) // not a Client, which would follow redirects
	if err != nil {
		return result{problem: problemOf(err)}
	}
	defer func() { _ = answer.Body.Close() }()
	if _, err := io.CopyN(io.Discard, answer.Body, mostAnswerBytes); err != nil && !errors.Is(err, io.EOF) {
		return result{status: answer.StatusCode, problem: problemOf(err)}
	}
	r := result{status: answer.StatusCode, retryAfter: retryAfter(answer.Header.Get("Retry-After"), now)}
	if answer.StatusCode < 200 || answer.StatusCode > 299 {
		r.problem = problemStatus
	}
	return r
}

// problemOf puts an error into one word: its own words name addresses.
func problemOf(err error) string {
	var name *net.DNSError
	var timeout interface{ Timeout() bool }
	var record tls.RecordHeaderError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.Is(err, errRefused):
		return problemAddress
	case errors.As(err, &certificate), errors.As(err, &record):
		return problemTLS
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return problemTimeout
	case errors.As(err, &name):
		return problemName
	}
	return problemConnection
}

// retryAfter reads seconds or a date (RFC 9110), and nothing of what is neither.
func retryAfter(text string, now time.Time) time.Duration {
	if seconds, err := strconv.Atoi(text); err == nil {
		return min(max(0, time.Duration(min(seconds, int(mostRetryAfter/time.Second)))*time.Second), mostRetryAfter)
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(0, at.Sub(now)), mostRetryAfter)
	}
	return 0
}

// checkURL says what is wrong with an endpoint's address; empty: nothing that can be seen without resolving it.
func checkURL(text string, guard Guard) string {
	parsed, err := url.Parse(text)
	switch {
	case len(text) > holdfast.MaxEndpointURL:
		return "use at most " + strconv.Itoa(holdfast.MaxEndpointURL) + " bytes"
	case err != nil || parsed.Host == "" || parsed.Hostname() == "" || parsed.Opaque != "":
		return "use an address like https://example.com/webhooks"
	case parsed.Scheme != "https" && parsed.Scheme != "http":
		return "use https, or http inside a network that the server allows"
	case parsed.User != nil:
		return "leave user and password out: deliveries are signed instead"
	case parsed.Fragment != "" || strings.Contains(text, "#"):
		return "leave the fragment out"
	case parsed.Scheme == "http" && len(guard.Allow) == 0:
		return "use https: the server allows no network of its own"
	}
	if port := parsed.Port(); port != "" {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return "use a port from 1 to 65535"
		}
	}
	if address, err := netip.ParseAddr(parsed.Hostname()); err == nil && guard.check(address, parsed.Scheme == "https") != nil {
		return "use a public address, or let the server allow this network"
	}
	return ""
}
