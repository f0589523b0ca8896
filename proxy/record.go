package proxy

import (
	"crypto/rand"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/net/http/httpguts"
)

// keyDigits is how much of a key's hash is logged.
const keyDigits = 12

// A recorder writes one line and one set of figures for each request. It is the
// only room that logs requests.
//
// The fields of the line: request_id, route, method, host, path, status, bytes,
// duration_ms, client, and where they apply upstream, upstream_ms, limit (the
// one that refused) with wait_ms, key and masked, banned (from now on), list (the
// one that decided), new_keys (refused, or shadow_refused, for too many of them),
// refunded, fallback and error. The query is never written,
// and of a key only the beginning of its hash: enough to find it in the store, too
// little to tell what the client sent. A key that is sensitive is shown masked as
// well.
type recorder struct {
	log     zerolog.Logger
	metrics *metrics
}

// arrive notes the beginning of a request.
func (rec *recorder) arrive(x *exchange) { x.began = time.Now() }

// name gives the request an id. One that a trusted proxy has given it stays.
func (rec *recorder) name(x *exchange) {
	if x.trusted {
		if ids := x.header.Values("X-Request-Id"); len(ids) == 1 && isID(ids[0]) {
			x.id = ids[0]
			return
		}
	}
	x.id = rand.Text()
}

// isID reports whether s may be passed on and logged as a request's id.
func isID(s string) bool { return len(s) <= 128 && httpguts.ValidHeaderFieldName(s) }

// leave notes what came of it.
func (rec *recorder) leave(x *exchange) {
	took := time.Since(x.began)
	name := "none"
	if x.route != nil {
		name = x.route.name
	}
	rec.metrics.served(name, x.status, took)
	if x.repeated {
		rec.metrics.repeats.WithLabelValues(name).Inc()
	}
	if x.list != nil {
		rec.metrics.listed.WithLabelValues(name, x.list.Name, string(x.list.Action)).Inc()
	}
	e := rec.log.Info()
	if e == nil {
		return
	}
	e.Str("request_id", x.id).Str("route", name).Str("method", x.method).Str("host", x.host).Str("path", x.shown()).
		Int("status", x.status).Int64("bytes", x.bytes).Float64("duration_ms", ms(took)).
		Stringer("client", x.client)
	if x.result.Target != "" {
		e.Str("upstream", x.result.Target).Float64("upstream_ms", ms(x.result.FirstByte))
	}
	i, refused := x.refusing()
	if refused {
		hash, masked := x.people(i)
		e.Str("limit", x.window(i).of.name).Float64("wait_ms", ms(x.decision.Wait)).Str("key", hash)
		if masked != "" {
			e.Str("masked", masked)
		}
	}
	if x.novelty != "" {
		e.Str("new_keys", x.novelty)
	}
	if x.repeated {
		e.Bool("repeated", true)
	}
	if x.banned {
		e.Bool("banned", true)
	}
	if x.list != nil {
		e.Str("list", x.list.Name)
	}
	if x.returned {
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

// people is what people are shown of the key of claims[i]: the beginning of its
// hash, and, if it is sensitive, itself, masked.
func (x *exchange) people(i int) (hash, masked string) {
	key := x.claims[i].Key
	if k := slices.IndexFunc(x.keys, func(k counted) bool { return k.Key == key }); k >= 0 {
		masked = x.keys[k].shown
	}
	return key.String()[:keyDigits], masked
}

// shown is the path for people to read: a parameter that is a key is hidden.
func (x *exchange) shown() string {
	if x.route == nil {
		return x.path
	}
	path := x.path
	for i, name := range x.route.params {
		if slices.Contains(x.route.hidden, name) && i < len(x.found.URLParams.Values) {
			path = strings.Replace(path, "/"+x.found.URLParams.Values[i], "/*", 1)
		}
	}
	return path
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
