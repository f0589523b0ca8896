package dashboard

import (
	"net/http"
	"slices"
	"time"

	"github.com/weir-proxy/weir/proxy/admin"
)

// A nodesView is the data of the page of nodes.
type nodesView struct {
	Nodes       known[admin.Nodes]
	Fault       fault
	Leader      known[admin.Leadership]
	LeaderFault fault
	Drift       int // number of nodes with another configuration
	At          time.Time
}

func (d *dashboard) showNodes(r *http.Request) view {
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
	v.LeaderFault = faultOf("the leader is not known", err)
	for _, n := range v.Nodes.Value.Nodes {
		if n.Drift {
			v.Drift++
		}
	}
	return view{name: "nodes", title: "Nodes", data: v}
}

// withSelf returns the last known nodes with this one, of which a node always knows.
func withSelf(k known[admin.Nodes], self admin.Member) known[admin.Nodes] {
	others := slices.DeleteFunc(slices.Clone(k.Value.Nodes), func(m admin.Member) bool { return m.ID == self.ID })
	k.Value.Self, k.Value.Nodes = self.ID, append([]admin.Member{self}, others...)
	return k
}
