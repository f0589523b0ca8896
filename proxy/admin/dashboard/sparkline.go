package dashboard

import (
	"fmt"
	"html/template"
	"slices"
	"strings"
)

// The size of a sparkline, in pixels.
const (
	sparkWidth  = 120
	sparkHeight = 24
)

// spark draws values as bars. It is hidden from screen readers, because the number beside it has
// the same information.
func spark(values []int64) template.HTML {
	if len(values) == 0 {
		return ""
	}
	most := max(slices.Max(values), 1)
	step := float64(sparkWidth) / float64(len(values))
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="spark" width="%d" height="%d" viewBox="0 0 %d %d" aria-hidden="true" focusable="false">`, sparkWidth, sparkHeight, sparkWidth, sparkHeight)
	b.WriteString(`<path d="`) // one element for all bars
	for i, v := range values {
		if v <= 0 {
			continue
		}
		h := max(float64(v)/float64(most)*sparkHeight, 1.5)
		fmt.Fprintf(&b, "M%.1f %dv-%.1fh%.1fv%.1fz", float64(i)*step+0.5, sparkHeight, h, max(step-1, 0.5), h)
	}
	b.WriteString(`"/>`)
	fmt.Fprintf(&b, `<line x1="0" x2="%d" y1="%d" y2="%d"/></svg>`, sparkWidth, sparkHeight, sparkHeight)
	return template.HTML(b.String()) // #nosec G203 -- it contains only numbers
}
