package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/config"
)

// A plan is what would change if a running weir served something else.
type plan struct {
	Generation int64           `json:"generation"` // that is served
	Changes    []config.Change `json:"changes"`
}

// compare prints what would change if a running weir served the file, as that
// weir, in its own environment, understands it.
func (c checkCommand) compare(ctx context.Context, out io.Writer) error {
	b, err := pack(c.File, out)
	if err != nil {
		return err
	}
	var p plan
	a := running{Admin: c.Against, Token: c.Token}
	if err := a.ask(ctx, out, http.MethodPost, "/api/v1/plan", admin.Push{Bundle: b}, &p); err != nil {
		return err
	}
	for _, change := range p.Changes {
		fmt.Fprintln(out, change)
	}
	fmt.Fprintf(out, "%d changes against generation %d\n", len(p.Changes), p.Generation)
	return nil
}
