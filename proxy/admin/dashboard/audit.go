package dashboard

import (
	"net/http"
	"slices"

	"github.com/weir-proxy/weir/proxy/admin"
)

// auditShown is the number of entries of a page.
const auditShown = 50

// An auditView is the data of the audit page.
type auditView struct {
	Audit admin.Audit
	Later bool // not the first page
	Fault fault
}

// Reasons reports whether an entry has a reason. Without any, the page has no column for them.
func (v auditView) Reasons() bool {
	return slices.ContainsFunc(v.Audit.Entries, func(e admin.AuditEntry) bool { return e.Reason != "" })
}

func (d *dashboard) showAudit(r *http.Request) view {
	q := admin.AuditQuery{Before: r.URL.Query().Get("before"), N: auditShown}
	v := auditView{Later: q.Before != ""}
	var err error
	v.Audit, err = d.Audit(r.Context(), q)
	v.Fault = faultOf("the audit trail cannot be read", err)
	return view{name: "audit", title: "Audit", data: v}
}
