package dashboard

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/weir-proxy/weir/proxy/admin"
)

// decisionsShown is the number of requests of a page.
const decisionsShown = 50

// A decisionsView is the data of the page of recent decisions.
type decisionsView struct {
	Query    admin.DecisionQuery
	Outcomes []string
	Routes   []string
	Limits   []string
	Said     admin.Decisions
	Fault    fault
	Before   string // cursor for the next page; empty at the end
	At       time.Time
}

// Filtered reports whether the list is filtered.
func (v decisionsView) Filtered() bool {
	q := v.Query
	return q.RequestID != "" || q.Route != "" || q.Limit != "" || q.Outcome != "" || q.Key != "" || !q.Before.IsZero()
}

func (d *dashboard) showDecisions(r *http.Request) view {
	f := r.URL.Query()
	v := decisionsView{At: time.Now(), Outcomes: []string{"refused", "shadow_refused", "rejected", "allowed"}, Query: admin.DecisionQuery{
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
	for _, l := range limits.Limits {
		v.Routes, v.Limits = append(v.Routes, l.Route), append(v.Limits, l.Name)
	}
	slices.Sort(v.Limits)
	v.Routes, v.Limits = slices.Compact(v.Routes), slices.Compact(v.Limits)
	return view{name: "decisions", title: "Decisions", data: v}
}

// silentNodes returns the nodes that did not reply.
func silentNodes(nodes []admin.NodeAnswer) []admin.NodeAnswer {
	return slices.DeleteFunc(slices.Clone(nodes), func(n admin.NodeAnswer) bool { return n.Said == "ok" })
}

// repliedNodes returns the nodes that replied.
func repliedNodes(nodes []admin.NodeAnswer) []admin.NodeAnswer {
	return slices.DeleteFunc(slices.Clone(nodes), func(n admin.NodeAnswer) bool { return n.Said != "ok" })
}
