package dashboard

import (
	"net/http"
	"slices"
	"time"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/view"
)

// A nodesView is the data of the page of nodes.
type nodesView struct {
	Nodes       known[admin.Nodes]
	Fault       fault
	Leader      known[view.Leadership]
	LeaderFault fault
	Drift       int // number of nodes with another configuration
	At          time.Time
}

func (d *dashboard) showNodes(r *http.Request) page {
	now := time.Now()
	v := nodesView{At: now}
	nodes, err := d.Nodes(r.Context())
	v.Fault = faultOf("nodes cannot be listed", err)
	v.Nodes = d.last.nodes.update(nodes, err, now)
	if err != nil && d.Self != nil {
		v.Nodes = withSelf(v.Nodes, d.Self())
	}
	leader, err := d.Leader(r.Context())
	v.Leader = d.last.leader.update(leader, err, now)
	v.LeaderFault = faultOf("who leads now is not known", err)
	for _, n := range v.Nodes.Value.Nodes {
		if n.Drift {
			v.Drift++
		}
	}
	return page{name: "nodes", title: "Nodes", data: v}
}

// withSelf returns the last known nodes with this one, of which a node always knows.
func withSelf(k known[admin.Nodes], self view.Member) known[admin.Nodes] {
	others := slices.DeleteFunc(slices.Clone(k.Value.Nodes), func(m view.Member) bool { return m.ID == self.ID })
	k.Value.Self, k.Value.Nodes = self.ID, append([]view.Member{self}, others...)
	return k
}

// An upstreamsView is the data of the page of upstreams.
type upstreamsView struct {
	Said  view.Upstreams
	Fault fault
	Sick  int // targets that are not healthy on some node
	All   int // targets
	At    time.Time
}

func (d *dashboard) showUpstreams(r *http.Request) page {
	v := upstreamsView{At: time.Now()}
	var err error
	v.Said, err = d.Upstreams(r.Context())
	v.Fault = faultOf("upstreams cannot be read", err)
	for _, u := range v.Said.Upstreams {
		for _, t := range u.Targets {
			v.All++
			if t.State != view.Healthy {
				v.Sick++
			}
		}
	}
	return page{name: "upstreams", title: "Upstreams", data: v}
}

// auditShown is the number of entries of a page.
const auditShown = 50

// An auditView is the data of the audit page.
type auditView struct {
	Audit view.Audit
	Later bool // not the first page
	Fault fault
}

// Reasons reports whether an entry has a reason. Without any, the page has no column for them.
func (v auditView) Reasons() bool {
	return slices.ContainsFunc(v.Audit.Entries, func(e view.AuditEntry) bool { return e.Reason != "" })
}

func (d *dashboard) showAudit(r *http.Request) page {
	q := view.AuditQuery{Before: r.URL.Query().Get("before"), N: auditShown}
	v := auditView{Later: q.Before != ""}
	var err error
	v.Audit, err = d.Audit(r.Context(), q)
	v.Fault = faultOf("the audit trail cannot be read", err)
	return page{name: "audit", title: "Audit", data: v}
}
