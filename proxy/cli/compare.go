package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/weir-proxy/weir/proxy/admin"
)

// compare prints what would change if a running weir served the file. The
// running weir reads the file in its own environment.
func (c checkCommand) compare(ctx context.Context, out io.Writer) error {
	b, err := packBundle(c.File, out)
	if err != nil {
		return err
	}
	p, err := admin.Client{Address: c.Against, Token: c.Token, HTTP: c.httpClient()}.Plan(ctx, admin.Push{Bundle: b})
	if err != nil {
		return err
	}
	printPlan(out, p)
	return nil
}

// printPlan prints the changes as text.
func printPlan(out io.Writer, p admin.Plan) {
	for _, change := range p.Changes {
		fmt.Fprintln(out, change)
	}
	for _, r := range p.Refused {
		fmt.Fprintf(out, "%s would refuse %s now, such as %s=hash:%s\n", r.Limit, plural(r.Keys, "key"), r.Key, strings.Join(r.Named, ", hash:"))
	}
	switch {
	case p.Restart != "":
		fmt.Fprintln(out, p.Restart)
	case p.Unknown != "":
		fmt.Fprintf(out, "cannot tell which keys would be refused: %s\n", p.Unknown)
	case p.Whole && len(p.Changes) == 0: // nothing was to be checked
	case p.Whole:
		fmt.Fprintf(out, "checked all counts (%d)\n", p.Looked)
	default:
		fmt.Fprintf(out, "checked %d counts; there are more\n", p.Looked)
	}
	fmt.Fprintf(out, "%s against generation %d\n", plural(len(p.Changes), "change"), p.Generation)
	if p.Warning != "" {
		fmt.Fprintf(out, "%s (warning)\n", p.Warning)
	}
}
