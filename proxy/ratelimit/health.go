package ratelimit

import (
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// healthTimeout is the time for a request.
const healthTimeout = 5 * time.Second

// A health answers /healthcheck: 200 while Weir is ready, otherwise 500.
type health struct{ ready atomic.Bool }

// serve answers on an address until stop is called.
func (h *health) serve(address string) (stop func(), err error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthcheck", func(w http.ResponseWriter, _ *http.Request) {
		if !h.ready.Load() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.Write([]byte("OK"))
	})
	s := &http.Server{Handler: mux, ReadHeaderTimeout: healthTimeout, ReadTimeout: healthTimeout, WriteTimeout: healthTimeout}
	go s.Serve(l)
	return func() { s.Close() }, nil
}
