package dashboard

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
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
	At       time.Time
}

// Filtered reports whether the list is filtered.
func (v decisionsView) Filtered() bool {
	q := v.Query
	return q.RequestID != "" || q.Route != "" || q.Limit != "" || q.Outcome != "" || q.Key != "" || !q.Before.IsZero()
}

func (d *dashboard) showDecisions(r *http.Request) page {
	f := r.URL.Query()
	v := decisionsView{At: time.Now(), Outcomes: []string{"refused", "shadow_refused", "rejected", "allowed"}, Query: view.DecisionQuery{
		RequestID: cmp.Or(f.Get("request"), f.Get("request_id")), Route: f.Get("route"), Limit: f.Get("limit"), Outcome: f.Get("outcome"), Key: f.Get("hash"), N: decisionsShown,
	}}
	if t, err := time.Parse(time.RFC3339Nano, f.Get("before")); err == nil {
		v.Query.Before = t
	}
	var err error
	v.Said, err = d.Decisions(r.Context(), v.Query)
	v.Fault = faultOf("decisions cannot be read", err)
	if n := len(v.Said.Decisions); n >= decisionsShown {
		v.Before = v.Said.Decisions[n-1].At.UTC().Format(time.RFC3339Nano)
	}
	limits, err := d.Limits(r.Context())
	v.Fault = cmp.Or(v.Fault, faultOf("limits cannot be read", err))
	_, v.Limits = namesOf(limits)
	routes, err := d.Routes(r.Context())
	v.Fault = cmp.Or(v.Fault, faultOf("routes cannot be read", err))
	for _, route := range routes.Routes {
		v.Routes = append(v.Routes, route.Name)
	}
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

// A decisionRow is a decision with the limits that were asked, and how many of its limits were not.
type decisionRow struct {
	view.Decision
	Asked    []view.DecisionLimit
	NotAsked int
}

// Rows returns the decisions of the page.
func (v decisionsView) Rows() (rows []decisionRow) {
	for _, d := range v.Said.Decisions {
		row := decisionRow{Decision: d}
		for _, l := range d.Limits {
			if l.Result == "not_asked" {
				row.NotAsked++
			} else {
				row.Asked = append(row.Asked, l)
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// Masked returns the key of the limit that decided; empty if there is none.
func (r decisionRow) Masked() string {
	for _, l := range r.Limits {
		if l.Masked != "" {
			return l.Masked
		}
	}
	return ""
}

// Explain returns the address of the page that explains such a request.
func (r decisionRow) Explain() string {
	return "/dashboard/explain?" + url.Values{"method": {r.Method}, "url": {r.Path}, "request": {r.RequestID}}.Encode()
}

// silentNodes returns the nodes that did not reply.
func silentNodes(nodes []view.NodeAnswer) []view.NodeAnswer {
	return slices.DeleteFunc(slices.Clone(nodes), func(n view.NodeAnswer) bool { return n.Said == "ok" })
}

// repliedNodes returns the nodes that replied.
func repliedNodes(nodes []view.NodeAnswer) []view.NodeAnswer {
	return slices.DeleteFunc(slices.Clone(nodes), func(n view.NodeAnswer) bool { return n.Said != "ok" })
}
