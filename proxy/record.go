package proxy

import (
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/net/http/httpguts"
)

// A recorder writes one line and one set of figures for each request. It is the
// only stage that logs requests.
//
// The fields of the line: request_id, route, method, host, path, status, bytes,
// duration_ms, client (as privacy.log_client says), and where they apply upstream,
// upstream_ms; of the first limit that refused limit, rate (phone-1h), wait_ms, key,
// masked and banned, with ban_began when it was this request's doing; also, the other
// rates that refused, with rate, key, masked and banned; shadow, in the same way what
// limits in shadow mode would have refused, or with unfit, that the request could not
// have been asked about; list (the one that decided), new_keys (refused, or
// shadow_refused, for too many of them), refunded, fallback and error. The query is
// never written, and of a key only the beginning of a hash: too little to tell what
// the client sent (redact.go). A key that is sensitive is shown masked as well.
//
// Of requests that HTTP/2 clients took back only some are told of; the others are in
// the figures, as all are.
type recorder struct {
	log     zerolog.Logger
	metrics *metrics
	resets  sample
	ids     requestIDs
}

// arrive notes the beginning of a request.
func (rec *recorder) arrive(x *exchange) { x.began = time.Now() }

// name gives the request an id. One that a trusted proxy has given it stays.
func (rec *recorder) name(x *exchange) {
	if x.client.trustedPeer {
		if ids := x.in.header.Values("X-Request-Id"); len(ids) == 1 && isID(ids[0]) {
			x.id = ids[0]
			return
		}
	}
	x.id = rec.ids.next()
}

// isID reports whether s may be passed on and logged as a request's id.
func isID(s string) bool { return len(s) <= 128 && httpguts.ValidHeaderFieldName(s) }

// leave notes what came of it.
func (rec *recorder) leave(x *exchange) {
	name := rec.metrics.served(x)
	if x.repeated {
		rec.metrics.repeats.WithLabelValues(name).Inc()
	}
	if x.list != nil {
		rec.metrics.listMatches.WithLabelValues(name, x.list.Name, string(x.list.Action)).Inc()
	}
	e := rec.log.Info()
	if e == nil {
		return
	}
	if x.answer.streamReset && !rec.resets.passes(time.Now()) {
		e.Discard()
		rec.metrics.unlogged.Inc()
		return
	}
	e.Str("request_id", x.id).Str("route", name).Str("method", x.request.Method).Str("host", x.request.Host).Str("path", x.redactedPath()).
		Int("status", x.answer.status).Int64("bytes", x.answer.bytes).Float64("duration_ms", ms(x.took))
	if client := x.generation.redact.client(x); client != "" {
		e.Str("client", client)
	}
	if x.outcome.result.Target != "" {
		e.Str("upstream", x.outcome.result.Target).Float64("upstream_ms", ms(x.outcome.result.FirstByte))
	}
	refused := x.logRefusals(e)
	if x.newKeys != "" {
		e.Str("new_keys", x.newKeys)
	}
	if x.repeated {
		e.Bool("repeated", true)
	}
	if x.list != nil {
		e.Str("list", x.list.Name)
	}
	if x.settled.returned {
		e.Bool("refunded", true)
	}
	if x.fallback != "" {
		e.Str("fallback", x.fallback)
	}
	if x.err != nil && !refused {
		e.AnErr("error", x.err)
	}
	e.Msg("request")
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
