package dashboard

import (
	"net/http"
	"time"

	"github.com/weir-proxy/weir/proxy/admin"
)

// A nodesView is the data of the page of nodes.
type nodesView struct {
	Nodes       admin.Nodes
	Fault       fault
	Leader      admin.Leadership
	LeaderFault fault
	Drift       int // number of nodes with another configuration
	At          time.Time
}

func (d *dashboard) showNodes(r *http.Request) view {
	v := nodesView{At: time.Now()}
	var err error
	v.Nodes, err = d.Nodes(r.Context())
	v.Fault = faultOf("nodes cannot be listed", err)
	v.Leader, err = d.Leader(r.Context())
	v.LeaderFault = faultOf("the leader is not known", err)
	for _, n := range v.Nodes.Nodes {
		if n.Drift {
			v.Drift++
		}
	}
	return view{name: "nodes", title: "Nodes", data: v}
}
