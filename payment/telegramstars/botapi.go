package telegramstars

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// BotAPI calls the few methods of the Bot API that are needed here. It waits where Telegram says so, and tries again where an
// answer was lost: everything it does may be done twice. Its errors never hold the token.
type BotAPI struct {
	Token string
	URL   string       // of the Bot API; empty: Telegram's
	HTTP  *http.Client // nil: one with a timeout of 30 seconds
	// Wait is how it waits; nil: by the clock.
	Wait func(ctx context.Context, length time.Duration) error
}

const (
	telegram   = "https://api.telegram.org"
	tries      = 5
	longest    = time.Minute // that is waited for, whatever Telegram says
	maxAnswer  = 8 << 20
	waitFirst  = time.Second // and twice as long each time
	callWithin = 30 * time.Second
)

// StarTransactions calls getStarTransactions.
func (b *BotAPI) StarTransactions(ctx context.Context, offset, limit int) ([]Transaction, error) {
	var answer struct {
		Transactions []Transaction `json:"transactions"`
	}
	err := b.call(ctx, "getStarTransactions", map[string]any{"offset": offset, "limit": limit}, &answer)
	return answer.Transactions, err
}

// Do does an action.
func (b *BotAPI) Do(ctx context.Context, action Action) error {
	if action.Kind != CancelSubscription {
		return fmt.Errorf("there is no action %q", action.Kind)
	}
	method, parameters := action.Call()
	return b.call(ctx, method, parameters, nil)
}

// answered is the frame of every answer of the Bot API.
type answered struct {
	OK          bool            `json:"ok"`
	Result      json.RawMessage `json:"result"`
	ErrorCode   int             `json:"error_code"`
	Description string          `json:"description"`
	Parameters  struct {
		RetryAfter int `json:"retry_after"`
	} `json:"parameters"`
}

func (b *BotAPI) call(ctx context.Context, method string, arguments map[string]any, into any) error {
	body, err := json.Marshal(arguments)
	if err != nil {
		return err
	}
	var last error
	pause := waitFirst
	for try := range tries {
		if try > 0 {
			if err := b.wait(ctx, min(pause, longest)); err != nil {
				return err
			}
			pause *= 2
		}
		answer, err := b.once(ctx, method, body)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			last = fmt.Errorf("%s: %w", method, err)
		case answer.OK && into == nil:
			return nil
		case answer.OK:
			if err := json.Unmarshal(answer.Result, into); err != nil {
				return fmt.Errorf("%s: read the answer: %w", method, err)
			}
			return nil
		default:
			last = fmt.Errorf("%s: %d %s", method, answer.ErrorCode, answer.Description)
			if answer.ErrorCode != http.StatusTooManyRequests && answer.ErrorCode < 500 {
				return last
			}
			if after := time.Duration(answer.Parameters.RetryAfter) * time.Second; after > 0 {
				pause = after
			}
		}
	}
	return last
}

func (b *BotAPI) once(ctx context.Context, method string, body []byte) (*answered, error) {
	base := b.URL
	if base == "" {
		base = telegram
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(base, "/")+"/bot"+b.Token+"/"+method, bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("the token or the address of the Bot API is malformed")
	}
	request.Header.Set("Content-Type", "application/json")
	client := b.HTTP
	if client == nil {
		client = &http.Client{Timeout: callWithin}
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, withoutAddress(err)
	}
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, withoutAddress(err)
	}
	var answer answered
	if err := json.Unmarshal(raw, &answer); err != nil || !answer.OK && answer.ErrorCode == 0 {
		answer = answered{ErrorCode: response.StatusCode, Description: http.StatusText(response.StatusCode)}
		if response.StatusCode < 400 {
			answer.ErrorCode, answer.Description = http.StatusBadGateway, "the answer is not the Bot API's"
		}
	}
	return &answer, nil
}

// withoutAddress drops the address that errors of net/http begin with: the token is in it.
func withoutAddress(err error) error {
	var addressed *url.Error
	if errors.As(err, &addressed) {
		return addressed.Err
	}
	return err
}

func (b *BotAPI) wait(ctx context.Context, length time.Duration) error {
	if b.Wait != nil {
		return b.Wait(ctx, length)
	}
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
