package acceptance

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/pgtest"
)

// Case 58: a database that is down says 503 and never "no money"; when it is back, so is the service, without a restart,
// and nothing that was acknowledged is lost.
func TestADatabaseThatIsDownAndBackLosesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("-short runs without servers")
	}
	database := pgtest.Start(t)
	db := database.Database(t)
	s := serve(t, db)
	s.account("ann", 5)
	before := s.reserve("ann", "m1").want(t, 201)
	s.call("POST", "/v1/reservations/"+before.text("id")+"/release", "", object{}).want(t, 200)

	database.Kill(t)
	down := s.reserve("ann", "m2").want(t, 503)
	if down.header.Get("Retry-After") == "" || down.text("reason") == "" {
		t.Errorf("down: %v %v", down.header, down.body)
	}
	if ready := s.call("GET", "/readyz", "", nil); ready.status != 503 {
		t.Errorf("readyz says %d", ready.status)
	}
	s.call("GET", "/v1/accounts/ann", "", nil).want(t, 503)

	database.Run(t)
	deadline := time.Now().Add(time.Minute)
	after := s.reserve("ann", "m2")
	for after.status == 503 && time.Now().Before(deadline) {
		time.Sleep(100 * time.Millisecond) // a real server starts
		after = s.reserve("ann", "m2")
	}
	after.want(t, 201)
	if again := s.reserve("ann", "m1").want(t, 201); again.text("id") != before.text("id") || again.header.Get("Idempotent-Replayed") != "true" {
		t.Error("an acknowledged answer was lost")
	}
	verified(t, db)
}

func TestTracesGoToACollectorWithoutTheArguments(t *testing.T) {
	received := make(chan []byte, 100)
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/v1/traces" {
			received <- body
		}
	}))
	defer collector.Close()
	s := serve(t, pgtest.NewEmpty(t), "--traces", collector.URL)
	s.account("a-secret-name", 5)
	if code := s.interrupt(); code != 0 { // what is left is sent at the end
		t.Fatalf("exit %d\n%s", code, s.notes)
	}
	var all []byte
	for len(received) > 0 {
		all = append(all, <-received...)
	}
	if !bytes.Contains(all, []byte("INSERT INTO holdfast.grants")) {
		t.Errorf("no span of the save in %d bytes", len(all))
	}
	if bytes.Contains(all, []byte("a-secret-name")) {
		t.Error("an argument is in the traces")
	}
}
