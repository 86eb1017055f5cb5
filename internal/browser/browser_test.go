package browser

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/chromedp/chromedp"
	"go.uber.org/goleak"
)

func TestNothingIsLeftOfABrowserThatHasEnded(t *testing.T) {
	before := goleak.IgnoreCurrent()
	temporary, err := os.MkdirTemp("", "b") // short: sockets below it have a longest path
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(temporary) }()
	t.Setenv("TMPDIR", temporary)
	var process *os.Process
	ran := t.Run("a browser", func(t *testing.T) {
		ctx := New(t)
		process = chromedp.FromContext(ctx).Browser.Process()
		if sum, err := chromedp.Run(ctx, chromedp.Evaluate[int]("40 + 2")); err != nil || sum != 42 {
			t.Errorf("it says %d (%v)", sum, err)
		}
		if len(left(t, temporary)) == 0 {
			t.Error("its profile is somewhere else, so this test looks in the wrong place")
		}
	})
	if process == nil {
		if ran {
			t.Skip("there was no browser")
		}
		return
	}
	if err := process.Signal(syscall.Signal(0)); !errors.Is(err, os.ErrProcessDone) && !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the process runs: %v", err)
	}
	if files := left(t, temporary); len(files) > 0 {
		t.Errorf("it left %v", files)
	}
	goleak.VerifyNone(t, before)
}

func left(t *testing.T, folder string) []string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func TestWhatAPageAsksForAndGetsWrongIsNoted(t *testing.T) {
	ctx := New(t)
	elsewhere := httptest.NewServer(http.NotFoundHandler())
	defer elsewhere.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Security-Policy", "img-src 'self'; style-src 'none'")
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, `<!doctype html><p style="color: red">A page with every fault.</p>
			<script>console.error("said", "so"); console.log("quietly")</script>
			<script>throw new Error("thrown")</script>
			<script>fetch("/nothing").finally(() => fetch(%q, {mode: "no-cors"})).finally(() => document.title = "done")</script>
			<img src="%s/forbidden">`, elsewhere.URL+"/allowed", elsewhere.URL)
	}))
	defer server.Close()
	notes := Watch(ctx, t)
	if err := chromedp.Do(ctx, chromedp.Navigate(server.URL)); err != nil {
		t.Fatal(err)
	}
	Until(ctx, t, `document.title === "done"`)
	if requests := notes.Requests(); !slices.Contains(requests, server.URL+"/") || !slices.Contains(requests, server.URL+"/nothing") || !slices.Contains(requests, elsewhere.URL+"/allowed") {
		t.Errorf("noted only these requests: %v", requests)
	}
	faults := strings.Join(notes.Faults(), "\n")
	for _, want := range []string{`"said" "so"`, "Error: thrown", "404", "/nothing", "img-src", "style-src"} {
		if !strings.Contains(faults, want) {
			t.Errorf("nothing is noted of %q:\n%s", want, faults)
		}
	}
	if strings.Contains(faults, "quietly") {
		t.Errorf("what is no fault is noted:\n%s", faults)
	}
}

func TestABrowserThatSomebodyChoseIsNotReplacedByAnother(t *testing.T) {
	never := func() error { t.Error("something is installed"); return nil }
	program, _, err := choose("/nowhere/chromium", []string{"true", "chromium"}, never)
	if err == nil || program != "" || !strings.Contains(err.Error(), "/nowhere/chromium") {
		t.Errorf("found %q (%v)", program, err)
	}
}

func TestWithoutABrowserItIsSaidWhatToInstall(t *testing.T) {
	for _, install := range []func() error{
		func() error { return errors.New("no network") },
		func() error { return nil }, // and yet no program runs
	} {
		program, _, err := choose("", []string{"no-such-browser"}, install)
		if program != "" || !errors.Is(err, errNone) {
			t.Errorf("found %q (%v)", program, err)
		}
	}
}

func TestAProgramThatOnlySaysWhatToInstallIsNoBrowser(t *testing.T) {
	stub := t.TempDir() + "/chromium"
	if err := os.WriteFile(stub, []byte("#!/bin/sh\necho 'install the snap' >&2\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if program, told := look(stub, "in a test"); program != "" {
		t.Errorf("found %s", told)
	}
}
