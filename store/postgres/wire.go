package postgres

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// wire is a network connection that knows whether COMMIT is on its way.
//
// When a connection breaks or a caller leaves, the driver asks the server on another connection to cancel what was running
// there. That is right for a Load that waits for a lock. It is wrong for COMMIT: with synchronous replication a cancelled
// COMMIT becomes visible before any replica has it, so that the next reader would acknowledge what a failover can lose.
type wire struct {
	net.Conn
	committing atomic.Bool
}

// RemoteAddr is where the driver sends its request to cancel: nowhere, while COMMIT is on its way.
func (w *wire) RemoteAddr() net.Addr {
	if w.committing.Load() {
		return nowhere{}
	}
	return w.Conn.RemoteAddr()
}

type nowhere struct{}

func (nowhere) Network() string { return "none" }
func (nowhere) String() string  { return "nowhere" }

// dial makes wires. A dead server is noticed in half a minute.
func dial(timeout time.Duration) pgconn.DialFunc {
	dialer := &net.Dialer{Timeout: timeout, KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 4,
	}}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &wire{Conn: conn}, nil
	}
}

// committing marks the wire of a connection, below TLS where there is TLS.
func committing(conn *pgconn.PgConn, on bool) {
	outer := conn.Conn()
	for {
		if w, ok := outer.(*wire); ok {
			w.committing.Store(on)
			return
		}
		wrapped, ok := outer.(interface{ NetConn() net.Conn })
		if !ok {
			return
		}
		outer = wrapped.NetConn()
	}
}
