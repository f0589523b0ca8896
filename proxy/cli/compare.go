package cli

import (
	"context"
	"io"
	"net/http"

	"github.com/weir-proxy/weir/proxy/admin"
)

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
	p.print(out)
	return nil
}
