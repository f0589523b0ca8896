package dashboard

import (
	"cmp"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/view"
)

// decisionsShown is the number of requests of a page.
const decisionsShown = 50

// A decisionsView is the data of the page of recent decisions.
type decisionsView struct {
	Query    view.DecisionQuery
	Outcomes []string
	Routes   []string
	Limits   []string
	Said     view.Decisions
	Fault    fault
	Before   string // cursor for the next page; empty at the end
}

// Filtered reports whether the list is filtered.
func (v decisionsView) Filtered() bool {
	return v.Query != view.DecisionQuery{N: v.Query.N}
}

func (d *dashboard) showDecisions(r *http.Request) page {
	f := r.URL.Query()
	v := decisionsView{Outcomes: []string{"refused", "shadow_refused", "rejected", "allowed"}, Query: view.DecisionQuery{
		RequestID: cmp.Or(f.Get("request"), f.Get("request_id")), Route: f.Get("route"), Limit: f.Get("limit"), Outcome: f.Get("outcome"), Key: f.Get("hash"), N: decisionsShown,
	}}
	if t, err := time.Parse(time.RFC3339Nano, f.Get("before")); err == nil {
		v.Query.Before = t
	}
	said, err := d.Decisions(r.Context(), v.Query)
	v.Said, v.Fault = said, faultOf("decisions cannot be read", err)
	if n := len(v.Said.Decisions); n >= decisionsShown {
		v.Before = v.Said.Decisions[n-1].At.UTC().Format(time.RFC3339Nano)
	}
	limits, err := d.Limits(r.Context())
	v.Fault = cmp.Or(v.Fault, faultOf("limits cannot be read", err))
	_, v.Limits = namesOf(limits)
	routes, err := d.Routes(r.Context())
	v.Fault = cmp.Or(v.Fault, faultOf("routes cannot be read", err))
	v.Routes = routes.Names()
	slices.Sort(v.Routes)
	v.Routes = append(v.Routes, unmatched)
	return page{name: "decisions", title: "Decisions", data: v}
}

// URL returns the address of the next page.
func (v decisionsView) URL() string {
	return "/dashboard/decisions?" + admin.QueryOf(map[string]any{
		"before": v.Before, "outcome": v.Query.Outcome, "route": v.Query.Route, "limit": v.Query.Limit, "hash": v.Query.Key,
	})
}

// Asked returns the limits that were asked, and NotAsked the number of the others.
func (decisionsView) Asked(d view.Decision) []view.DecisionLimit {
	return slices.DeleteFunc(slices.Clone(d.Limits), func(l view.DecisionLimit) bool { return l.Result == "not_asked" })
}
func (v decisionsView) NotAsked(d view.Decision) int { return len(d.Limits) - len(v.Asked(d)) }

// Explain returns the address of the page that explains a request such as that of d.
func (decisionsView) Explain(d view.Decision) string {
	return "/dashboard/explain?" + url.Values{"method": {d.Method}, "url": {d.Path}, "request": {d.RequestID}}.Encode()
}

// repliedNodes returns the nodes that replied.
func repliedNodes(nodes []view.NodeAnswer) []view.NodeAnswer {
	return slices.DeleteFunc(slices.Clone(nodes), func(n view.NodeAnswer) bool { return n.Said != "ok" })
}

// An explainView is the data of the page that explains a request.
type explainView struct {
	Method string
	URL    string
	Header string // one field per line
	Body   string
	Client string
	Fault  fault
	// Decided is the decision about the request that is to be explained; nil if none is named.
	Decided *view.Decision
	// Explained is nil before the form was sent.
	Explained *view.Explanation
}

// showExplainForm shows the form, filled in from a decision if its method and URL are given: header and body
// of a request are not kept, its address only as a key.
func (d *dashboard) showExplainForm(r *http.Request) page {
	f := r.URL.Query()
	v := explainView{Method: cmp.Or(f.Get("method"), http.MethodGet), URL: f.Get("url")}
	if id := f.Get("request"); id != "" {
		said, err := d.Decisions(r.Context(), view.DecisionQuery{RequestID: id, N: 1})
		v.Fault = faultOf("the decision cannot be read", err)
		if len(said.Decisions) > 0 {
			v.Decided = &said.Decisions[0]
			v.Client = clientOf(v.Keys())
		}
	}
	return page{name: "explain", title: "Explain", data: v}
}

// Keys returns the keys of the request that was decided, each once.
func (v explainView) Keys() (keys []string) {
	for _, l := range v.Decided.Limits {
		if l.Masked != "" && !slices.Contains(keys, l.Masked) {
			keys = append(keys, l.Masked)
		}
	}
	return keys
}

// clientOf returns the address of the client, if a limit counted by it, under whatever name, and it is shown in clear.
func clientOf(keys []string) string {
	for _, k := range keys {
		if addr, err := netip.ParseAddr(k[strings.Index(k, "=")+1:]); err == nil {
			return addr.String()
		}
	}
	return ""
}

func (d *dashboard) explain(r *http.Request) page {
	f := r.PostForm
	v := explainView{
		Method: strings.TrimSpace(f.Get("method")), URL: strings.TrimSpace(f.Get("url")),
		Header: f.Get("header"), Body: f.Get("body"), Client: strings.TrimSpace(f.Get("client")),
	}
	request, err := v.request()
	if err == nil {
		var said view.Explanation
		if said, err = d.Explain(r.Context(), request); err == nil {
			v.Explained = &said
		}
	}
	v.Fault = faultOf("this cannot be explained", err)
	return page{name: "explain", title: "Explain", status: statusOf(err), data: v}
}

// request returns the request that the form describes.
func (v explainView) request() (view.ExplainRequest, error) {
	r := view.ExplainRequest{Method: v.Method, URL: v.URL, Body: v.Body, Header: map[string][]string{}}
	for _, line := range linesOf(v.Header) {
		name, value, found := strings.Cut(line, ":")
		if !found {
			return r, errors.New("each line of the header has a colon; write for example X-Phone: +8613800138000")
		}
		name = http.CanonicalHeaderKey(strings.TrimSpace(name))
		r.Header[name] = append(r.Header[name], strings.TrimSpace(value))
	}
	r.SetContentType()
	if v.Client != "" {
		addr, err := netip.ParseAddr(v.Client)
		if err != nil {
			return r, errors.New("the client's address is an IP address; write for example 203.0.113.7")
		}
		r.Client = addr
	}
	return r, nil
}
