package main

import (
	"bufio"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/catalog"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/internal/apitest"
)

// The tests run this program as its reader does: as a process of its own.
func TestMain(m *testing.M) {
	if os.Getenv("AS_EXAMPLE") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestAPressIsOneChargeOrOneJobHoweverOftenItArrives(t *testing.T) {
	sold := catalog.Embedded()
	s := apitest.Start(t, engine.Options{Catalog: func(string) *holdfast.Catalog { return sold }})
	for _, do := range []holdfast.Operation{holdfast.PutAccount{}, holdfast.SetPlan{Plan: "pro"}} {
		if o, err := s.Engine.Submit(t.Context(), holdfast.Command{Project: apitest.Project, Account: "web:rich", Do: do}); err != nil || o.Refused() {
			t.Fatalf("%+v %v", o, err)
		}
	}
	example := exec.Command(os.Args[0], "-server", s.URL, "-listen", "127.0.0.1:0")
	example.Env = append(os.Environ(), "AS_EXAMPLE=1", "API_KEY="+apitest.Key)
	notes, err := example.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := example.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := example.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = example.Process.Kill()
		_ = example.Wait()
	}()
	line, err := bufio.NewReader(notes).ReadString('\n')
	_, address, found := strings.Cut(strings.TrimSpace(line), "listening on ")
	if err != nil || !found {
		t.Fatalf("it said %q (%v)", line, err)
	}
	go func() { _, _ = io.Copy(io.Discard, notes) }()
	visitor := &http.Client{Timeout: time.Minute}
	defer visitor.CloseIdleConnections()
	for _, press := range []struct {
		path, person, text, key string
		status                  int
		says                    string
	}{
		{"/improve", "ann", "a text", "press-1", 200, "A TEXT\ncharged 1, 2 left\n"},
		{"/improve", "ann", "a text", "press-1", 402, "refused: already_ended\n"},
		{"/improve", "ann", "", "press-2", 422, "there is no text\n"},
		{"/improve", "ann", "a text", "press-3", 200, "A TEXT\ncharged 1, 1 left\n"},
		{"/improve", "ann", "a text", "", 400, "refused: invalid; key: "},
		{"/chat", "ann", "hello", "press-4", 402, "“Chat” is not part of your plan."},
		{"/chat", "rich", "hello", "press-1", 202, "held at most 18, 282 left\n"},
		{"/chat", "rich", "hello", "press-1", 202, "held at most 18, 282 left\n"},
		{"/chat", "rich", "hello", "press-2", 202, "held at most 18, 264 left\n"},
	} {
		form := url.Values{"person": {press.person}, "text": {press.text}}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address+press.path, strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		request.Header.Set("Idempotency-Key", press.key)
		response, err := visitor.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		said, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != press.status || !strings.HasPrefix(string(said), press.says) {
			t.Errorf("%+v: %d %q %v", press, response.StatusCode, said, err)
		}
	}
	jobs := bufio.NewScanner(out)
	handed := map[string]int{}
	for range 3 {
		if !jobs.Scan() {
			t.Fatalf("only %v were handed over", handed)
		}
		handed[jobs.Text()]++
		if _, _, err := holdfast.ReservationRef.Parse(jobs.Text()); err != nil {
			t.Errorf("job %q: %v", jobs.Text(), err)
		}
	}
	if len(handed) != 2 {
		t.Errorf("two intentions are two jobs: %v", handed)
	}
}
