package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestFakeTelegramPrintsItsAddressAndPlaysBothSides(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	reading, writing := io.Pipe()
	var notes bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		code := run(ctx, []string{"fake-telegram", "--listen", "127.0.0.1:0", "--token", "7000001:any", "--verbose"}, &terminal{out: writing, notes: &notes})
		_ = writing.Close()
		ended <- code
	}()
	printed := bufio.NewReader(reading)
	line, err := printed.ReadString('\n')
	address, found := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if err != nil || !found {
		t.Fatalf("%q, %v", line, err)
	}
	rest := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(printed)
		rest <- string(text)
	}()
	ask := func(path, body string) string {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		request.Close = true
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		text, _ := io.ReadAll(response.Body)
		return string(text)
	}
	ask("/sim/chats/42/messages", `{"text": "/start"}`)
	for path, wanted := range map[string]string{
		"/bot7000001:any/getUpdates": `"text":"/start"`,
		"/bot7000002:any/getMe":      "Unauthorized",
	} {
		if got := ask(path, `{}`); !strings.Contains(got, wanted) {
			t.Errorf("%s: %s", path, got)
		}
	}
	stop()
	if code := <-ended; code != 0 {
		t.Errorf("exit %d", code)
	}
	if text := <-rest; !strings.Contains(text, "/sim/chats/{chat}/payments") || !strings.Contains(text, "curl -s "+address) {
		t.Errorf("it printed %s", text)
	}
	if !strings.Contains(notes.String(), "update message chat 42") || strings.Contains(notes.String(), ":any") {
		t.Errorf("it noted %s", notes.String())
	}
}

func TestFakeTelegramRefusesWhatIsNoToken(t *testing.T) {
	if _, notes := runs(t, 1, "fake-telegram", "--token", "any"); !strings.Contains(notes, "such as 7000001:any") {
		t.Errorf("it noted %q", notes)
	}
}
