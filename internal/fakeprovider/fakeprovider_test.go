package fakeprovider_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/fakeprovider"
)

func ask(ctx context.Context, url, key string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", strings.NewReader(`{"messages": [{"role": "user", "content": "a fox"}]}`))
	if err != nil {
		return "", err
	}
	request.Header.Set("Idempotency-Key", key)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

func TestARepeatUnderAKeyIsNoWorkAlsoWhileItIsWorkedOn(t *testing.T) {
	p := &fakeprovider.Provider{}
	s := httptest.NewServer(p)
	defer s.Close()
	release := p.Hold()
	defer release()
	gone, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() {
		_, err := ask(gone, s.URL, "rsv_1")
		first <- err
	}()
	for p.Worked() == 0 {
		runtime.Gosched() // it is on its way
	}
	cancel()
	if err := <-first; err == nil {
		t.Error("the caller that went away has an answer")
	}
	answers := make(chan string, 2)
	for range 2 {
		go func() {
			answer, err := ask(t.Context(), s.URL, "rsv_1")
			if err != nil {
				t.Error(err)
			}
			answers <- answer
		}()
	}
	release()
	if a, b := <-answers, <-answers; a != b || !strings.Contains(a, "a fox") || p.Worked() != 1 {
		t.Errorf("%s and %s, worked %d times", a, b, p.Worked())
	}
	if _, err := ask(t.Context(), s.URL, "rsv_2"); err != nil || p.Worked() != 2 {
		t.Errorf("another key: %v, worked %d times", err, p.Worked())
	}
}
