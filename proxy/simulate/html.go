package simulate

import "io"

// HTML writes a page.
func (r *Report) HTML(out io.Writer) error { return nil }
