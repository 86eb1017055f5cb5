package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// apiClient calls Holdfast as any program in any language would: over HTTP, with a key.
type apiClient struct {
	url, key string
	http     *http.Client
}

func newAPIClient(url, key string) *apiClient {
	return &apiClient{url: url, key: key, http: &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{}}}
}

// apiCall is one request. Key and Language may be empty; without a body none is sent.
type apiCall struct {
	method, path  string
	key, language string
	body          map[string]any
}

// apiAnswer is what the demo looks at in an answer: a reservation, an account, a payment, or a problem.
type apiAnswer struct {
	status   int
	replayed bool

	ID         string    `json:"id"`
	State      string    `json:"state"`
	Unit       string    `json:"unit"`
	Reserved   int64     `json:"reserved"`
	Used       int64     `json:"used"`
	ExpiresAt  time.Time `json:"expires_at"`
	LeaseToken string    `json:"lease_token"`
	Changed    *bool     `json:"changed"`
	Language   string    `json:"language"`
	Reason     string    `json:"reason"`
	Detail     string    `json:"detail"`
	Needed     int64     `json:"needed"`
	Available  int64     `json:"available"`
	Held       int64     `json:"held"`
	Active     int       `json:"active"`
	MaxActive  int       `json:"max_active"`
	Plan       string    `json:"plan"`
	Returned   int64     `json:"returned"`

	Queue    string   `json:"queue"`
	Attempts int      `json:"attempts"`
	Jobs     []apiJob `json:"jobs"` // of a claim
	Job      *struct {
		Crashes int `json:"crashes"`
	} `json:"job"`
	Secret string `json:"secret"` // of an endpoint

	PaymentID string `json:"payment_id"`
	Product   string `json:"product"`
	Refunded  int64  `json:"refunded"`
	Revoked   int64  `json:"revoked"`

	Estimated       bool             `json:"estimated"`
	AffordableUsage map[string]int64 `json:"affordable_usage"`

	Reservation *struct { // of already_ended: as it is
		State string `json:"state"`
		Used  int64  `json:"used"`
	} `json:"reservation"`
}

// apiJob is what a claim gives.
type apiJob struct {
	ID         string `json:"id"`
	State      string `json:"state"`
	LeaseToken string `json:"lease_token"`
	Attempt    int    `json:"attempt"`
}

func (c *apiClient) do(ctx context.Context, call apiCall) (*apiAnswer, error) {
	answer, err := c.send(ctx, call)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", call.method, call.path, err)
	}
	return answer, nil
}

func (c *apiClient) send(ctx context.Context, call apiCall) (*apiAnswer, error) {
	var body io.Reader
	if call.body != nil {
		encoded, err := json.Marshal(call.body)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(encoded)
	}
	request, err := http.NewRequestWithContext(ctx, call.method, c.url+call.path, body)
	if err != nil {
		return nil, err
	}
	for name, value := range map[string]string{
		"Authorization": "Bearer " + c.key, "Content-Type": "application/json",
		"Idempotency-Key": call.key, "Accept-Language": call.language,
	} {
		if value != "" {
			request.Header.Set(name, value)
		}
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	answer := &apiAnswer{status: response.StatusCode, replayed: response.Header.Get("Idempotent-Replayed") == "true"}
	if err := json.NewDecoder(response.Body).Decode(answer); err != nil {
		return nil, fmt.Errorf("answer %d is not the JSON it should be: %w", response.StatusCode, err)
	}
	return answer, nil
}
