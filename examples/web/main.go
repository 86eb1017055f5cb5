// Command web is a web server that sells two things through Holdfast:
//
//	API_KEY=try-me go run ./examples/web -server http://127.0.0.1:8080 -listen 127.0.0.1:8090
//
// POST /improve works while the person waits. POST /chat reserves, answers at once, and hands the work to a worker by its
// id, which it prints (see examples/worker). The key comes with the request: the page makes one for every intention, and
// sends it again when it sends the request again. It is for reading; nothing else calls it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/client"
	"github.com/holdfast-dev/holdfast/engine"
)

func main() {
	server := flag.String("server", "http://127.0.0.1:8080", "where Holdfast is")
	listen := flag.String("listen", "127.0.0.1:8090", "where to listen")
	flag.Parse()
	c, err := client.New(*server, os.Getenv("API_KEY"), client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	shop := &shop{holdfast: c, jobs: os.Stdout}
	http.HandleFunc("POST /improve", shop.improve)
	http.HandleFunc("POST /chat", shop.chat)
	log.Print("listening on http://", listener.Addr())
	log.Fatal((&http.Server{ReadHeaderTimeout: 10 * time.Second}).Serve(listener))
}

// shop sells. A real one takes the account from the person's session, and puts jobs into a queue.
type shop struct {
	holdfast *client.Client
	jobs     io.Writer
}

// improve does the work in the request, and charges what came of it.
func (s *shop) improve(w http.ResponseWriter, r *http.Request) {
	var better string
	outcome, err := s.holdfast.Run(r.Context(), engine.Request{
		Account: "web:" + r.FormValue("person"), Key: r.Header.Get("Idempotency-Key"),
		Reserve: holdfast.Reserve{Feature: "text.improve"},
	}, func(_ context.Context, _ *engine.Work) error {
		if r.FormValue("text") == "" {
			return errors.New("there is no text") // released: nothing is charged
		}
		better = strings.ToUpper(r.FormValue("text"))
		return nil
	})
	var refused *engine.Refused
	switch {
	case errors.As(err, &refused) && refused.Outcome.Reason == holdfast.Invalid:
		http.Error(w, err.Error(), http.StatusBadRequest)
	case errors.As(err, &refused):
		http.Error(w, "refused: "+string(refused.Outcome.Reason), http.StatusPaymentRequired)
	case isAccident(err):
		accident(w, err)
	case err != nil:
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
	default:
		_, _ = fmt.Fprintf(w, "%s\ncharged %d, %d left\n", better, outcome.Reservation.Used, outcome.Balance.Available)
	}
}

// chat holds the most that the answer can cost, and lets a worker write it.
func (s *shop) chat(w http.ResponseWriter, r *http.Request) {
	answer, err := s.holdfast.Ask(r.Context(), holdfast.Command{
		Account: "web:" + r.FormValue("person"), Key: r.Header.Get("Idempotency-Key"),
		Do: holdfast.Reserve{Feature: "chat.completion", Usage: map[string]holdfast.Amount{"input_token": 1200, "output_token": 4096}},
	})
	switch {
	case err != nil:
		accident(w, err)
	case answer.Refused():
		http.Error(w, answer.Detail, http.StatusPaymentRequired) // in the person's language
	default:
		// The same press again hands over the same id: what was lost on the way arrives, and who comes second is refused.
		_, _ = fmt.Fprintln(s.jobs, holdfast.ReservationRef.Encode(answer.Owner.ID, answer.Reservation.ID))
		w.WriteHeader(http.StatusAccepted)
		_, _ = fmt.Fprintf(w, "held at most %d, %d left\n", answer.Reservation.Reserved, answer.Balance.Available)
	}
}

func isAccident(err error) bool {
	var accident *engine.Error
	return errors.As(err, &accident)
}

// accident lets the page send the request again, with its key: nothing is charged twice.
func accident(w http.ResponseWriter, err error) {
	log.Print(err)
	w.Header().Set("Retry-After", "1")
	http.Error(w, "please try again", http.StatusServiceUnavailable)
}
