package admin

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/weir-proxy/weir/proxy/sends"
	"github.com/weir-proxy/weir/proxy/view"
)

const (
	// maxMinutes is one day, for which statistics are kept; defaultMinutes is the default number of
	// minutes.
	maxMinutes     = 24 * 60
	defaultMinutes = 60
	// TopMinutes is the number of minutes for which keys are counted, MaxRows the maximum number
	// of keys of a limit and of decisions in one response, and MaxAudited that of audit entries.
	TopMinutes = 15
	MaxRows    = 1000
	MaxAudited = 500
)

// urlQueryEndpoint returns an endpoint that reads something according to the query of its URL.
func urlQueryEndpoint[A any](path, summary string, query []parameter, ask func(r *http.Request) (A, error)) endpoint {
	return endpoint{
		method: http.MethodGet, path: path, role: Read, summary: summary, query: query, response: reflect.TypeFor[A](),
		handle: func(w http.ResponseWriter, r *http.Request) {
			if checkQuery(w, r, query) {
				respond(w, http.StatusServiceUnavailable, func() (A, error) { return ask(r) })
			}
		},
	}
}

func (o Options) minutes() endpoint {
	query := []parameter{intParam("minutes", "The last so many; 60 when it is left out.", maxMinutes)}
	return urlQueryEndpoint("/statistics", "Statistics of the last minutes, for all nodes together.", query, func(r *http.Request) (view.Statistics, error) {
		return o.Statistics(r.Context(), cmp.Or(intValue(r, "minutes"), defaultMinutes))
	})
}

func (o Options) decisions() endpoint {
	before := parameter{name: "before", summary: "Only requests that came before.", kind: "date-time"}
	outcome := parameter{name: "outcome", summary: "Only requests with that outcome.", kind: "string", enum: []string{"allowed", "refused", "shadow_refused", "rejected"}}
	query := []parameter{
		stringParam("request_id", "Only the request with that id."), stringParam("route", "Only requests of that route; none for those that no route matched."),
		stringParam("limit", "Only requests of which that limit was asked."), outcome,
		stringParam("key", "Only requests with the key of that hash or id."), before,
		intParam("n", "At most so many; 100 when it is left out.", MaxRows),
	}
	return urlQueryEndpoint("/decisions", "Decisions about recent requests on all nodes, newest first.", query, func(r *http.Request) (view.Decisions, error) {
		q := r.URL.Query()
		at, _ := time.Parse(time.RFC3339Nano, q.Get("before")) // already checked
		return o.Decisions(r.Context(), view.DecisionQuery{
			RequestID: q.Get("request_id"), Route: q.Get("route"), Limit: q.Get("limit"),
			Outcome: q.Get("outcome"), Key: q.Get("key"), Before: at, N: intValue(r, "n"),
		})
	})
}

func (o Options) top() endpoint {
	query := []parameter{
		stringParam("route", "Only limits of that route."), stringParam("limit", "Only limits of that name."),
		intParam("minutes", "The last so many; all that are known when it is left out.", TopMinutes),
		intParam("n", "At most so many keys of a limit; 20 when it is left out.", MaxRows),
	}
	return urlQueryEndpoint("/top", "The keys with most requests and most refusals, by limit, on all nodes together. Limits with most refusals come first; keys whose count is uncertain are left out.", query, func(r *http.Request) (view.Top, error) {
		q := r.URL.Query()
		return o.Top(r.Context(), view.TopQuery{Route: q.Get("route"), Limit: q.Get("limit"), Minutes: intValue(r, "minutes"), N: intValue(r, "n")})
	})
}

func (o Options) conversion() endpoint {
	query := []parameter{
		stringParam("route", "Only limits of that route."), stringParam("limit", "Only limits of that name."),
		intParam("n", "At most so many keys of a limit; 20 when it is left out.", MaxRows),
	}
	return urlQueryEndpoint("/conversion", "What became of the requests that limits with return_on count, such as codes that are sent: within the longest window of each limit, of all keys and of those with most requests, on all nodes together.", query, func(r *http.Request) (Conversion, error) {
		q := r.URL.Query()
		return o.Conversion(r.Context(), sends.Query{Route: q.Get("route"), Limit: q.Get("limit"), N: intValue(r, "n")})
	})
}

func (o Options) audit() endpoint {
	query := []parameter{
		stringParam("before", "Only entries before the one with that id."),
		intParam("n", "At most so many; 100 when it is left out.", MaxAudited),
	}
	return urlQueryEndpoint("/audit", "The audit trail, newest first.", query, func(r *http.Request) (view.Audit, error) {
		return o.Audit(r.Context(), view.AuditQuery{Before: r.URL.Query().Get("before"), N: intValue(r, "n")})
	})
}

// diff returns the endpoint for the diff of a generation.
func (o Options) diff() endpoint {
	return urlQueryEndpoint("/history/{generation}", "The changes of files in a generation.", nil, func(r *http.Request) (Diff, error) {
		n, err := strconv.ParseInt(chi.URLParam(r, "generation"), 10, 64)
		if err != nil {
			return Diff{}, &Problem{Status: http.StatusNotFound, Detail: "a generation is a number; GET /api/v1/history lists them"}
		}
		return o.Cluster.Diff(r.Context(), n)
	})
}

func (o Options) history(ctx context.Context) (History, error) { return o.Cluster.History(ctx) }

// requireLocal returns a middleware that allows requests of programs on this machine, as far as they can
// be recognized without a token. A web page can also reach a loopback address, by resolving its own
// name to that address (DNS rebinding). Then Host has that name, and requests that change something
// have fields that only browsers send.
func (o Options) requireLocal(next http.Handler) http.Handler {
	if len(o.tokenHashes()) > 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !o.isLocalName(r.Host) {
			problem(w, http.StatusMisdirectedRequest, fmt.Sprintf("without admin.token only this machine is answered, and %q is not its name; ask 127.0.0.1, or write the name into admin.hosts, or set admin.token", r.Host))
			return
		}
		if field := browserField(r); field != "" && !isDashboard(r) && r.Method != http.MethodGet && r.Method != http.MethodHead {
			problem(w, http.StatusForbidden, "without admin.token no web page may change anything, and "+field+" says that this is one; set admin.token, or use weir or curl")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isLocalName reports whether host, with or without a port, is one that programs on this machine use.
// HTTP/1.0 requests may have none; browsers always send one.
func (o Options) isLocalName(host string) bool {
	if host == "" {
		return true
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
	if addr, err := netip.ParseAddr(host); err == nil && addr.Unmap().IsLoopback() {
		return true
	}
	return host == "localhost" || slices.ContainsFunc(o.Hosts, func(name string) bool { return strings.EqualFold(name, host) })
}

// isDashboard reports whether r is for the dashboard, whose forms are sent by browsers. The dashboard
// recognizes its own forms by a token, which foreign pages cannot read.
func isDashboard(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/dashboard/") }

// browserField returns the name of a field that only browsers send, or "".
func browserField(r *http.Request) string {
	for name := range r.Header {
		if name == "Origin" || strings.HasPrefix(name, "Sec-Fetch-") {
			return name
		}
	}
	return ""
}
