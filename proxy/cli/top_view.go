package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/rivo/uniseg"
)

// A topStyle is the style of a line.
type topStyle int

// The styles.
const (
	plainLine topStyle = iota
	headLine
	dimLine
	badLine
	chosenLine
)

// A topLine is one line of the screen.
type topLine struct {
	text  string
	style topStyle
}

const (
	// minWidth and minHeight are the smallest terminal that is supported.
	minWidth, minHeight = 40, 8
	// readable is how far columns may be cut where there is no room, and columnGap how far
	// they are apart.
	readable, columnGap = 14, 2
	// reservedLines is how many lines there are at least, beside what is below the table:
	// four above it, its columns and one row, and two last ones.
	reservedLines = 8
)

// view returns the lines of the screen, cut to its size.
func (m topModel) view() []topLine {
	if m.width < minWidth || m.height < minHeight {
		return []topLine{{cut(fmt.Sprintf("%dx%d is too small", m.width, m.height), m.width), plainLine}}
	}
	now := "looking"
	if m.loaded {
		now = "as of " + m.data.At.Format(time.TimeOnly)
	}
	if m.paused {
		now += ", stopped"
	}
	lines := []topLine{{fmt.Sprintf("weir top  %s  %s", m.source, now), headLine}}
	switch {
	case m.fault != "":
		lines = append(lines, topLine{m.fault, badLine})
	case m.data.Away != "":
		lines = append(lines, topLine{m.data.summary(), badLine})
	case m.loaded:
		lines = append(lines, topLine{m.data.summary(), plainLine})
	default:
		lines = append(lines, topLine{"", plainLine})
	}
	lines = append(lines, topLine{m.tabs(), plainLine}, topLine{})
	below := m.below()
	if len(below) > m.height-reservedLines {
		below = below[:m.height-reservedLines]
	}
	lines = append(lines, m.rows(m.height-len(lines)-len(below)-2)...)
	for len(lines) < m.height-len(below)-2 {
		lines = append(lines, topLine{})
	}
	lines = append(lines, below...)
	lines = append(lines, m.lastLines()...)
	for i := range lines {
		lines[i].text = cut(lines[i].text, m.width)
	}
	return lines
}

// tabs returns the titles of the pages, the current one in brackets.
func (m topModel) tabs() string {
	var all []string
	for page := range pageCount {
		name := fmt.Sprintf("%d %s", page+1, page.title())
		if page == m.page {
			name = "[" + name + "]"
		} else {
			name = " " + name + " "
		}
		all = append(all, name)
	}
	if m.page == pageKeys {
		by := "refused most"
		if m.order == byRequests {
			by = "most requests"
		}
		all = append(all, fmt.Sprintf("  %s first, last %d minutes", by, m.data.Minutes))
	}
	return strings.Join(all, "")
}

// rows returns the table of the current page in at most room lines, scrolled to the
// selected row.
func (m topModel) rows(room int) []topLine {
	t := m.data.table(m.page, m.order)
	switch {
	case !m.loaded:
		return []topLine{{"", plainLine}}
	case len(t.rows) == 0:
		return []topLine{{t.empty, dimLine}}
	}
	widths := t.widths(m.width)
	lines := []topLine{{t.line(t.columns, widths), dimLine}}
	at := m.at(t.rows)
	first := max(at-(room-2), 0)
	for i := first; i < len(t.rows) && len(lines) < room; i++ {
		style := plainLine
		switch {
		case i == at:
			style = chosenLine
		case t.rows[i].bad:
			style = badLine
		}
		lines = append(lines, topLine{t.line(t.rows[i].cells, widths), style})
	}
	return lines
}

// widths returns the widths of the columns that fit into width. Columns longer than
// readable are cut before a column is left out.
func (t topTable) widths(width int) []int {
	widths := make([]int, len(t.columns))
	for i, name := range t.columns {
		widths[i] = uniseg.StringWidth(name)
		for _, row := range t.rows {
			widths[i] = max(widths[i], uniseg.StringWidth(row.cells[i]))
		}
	}
	for len(widths) > 1 && total(widths, readable) > width {
		widths = widths[:len(widths)-1]
	}
	for n := total(widths, width); n > width; n-- {
		widest := 0
		for i := range widths {
			if widths[i] > widths[widest] {
				widest = i
			}
		}
		widths[widest]--
	}
	return widths
}

// total returns the sum of the widths, each at most most.
func total(widths []int, most int) int {
	n := columnGap * (len(widths) - 1)
	for _, w := range widths {
		n += min(w, most)
	}
	return n
}

// line formats cells in columns.
func (t topTable) line(cells []string, widths []int) string {
	var b strings.Builder
	for i, width := range widths {
		cell := cut(cells[i], width)
		b.WriteString(cell)
		if i < len(widths)-1 {
			b.WriteString(strings.Repeat(" ", width-uniseg.StringWidth(cell)+columnGap))
		}
	}
	return b.String()
}

// below returns the lines below the table: help, or the state of a key.
func (m topModel) below() []topLine {
	var lines []topLine
	switch {
	case m.help:
		for _, text := range helpText() {
			lines = append(lines, topLine{text, plainLine})
		}
	case m.standing != nil:
		lines = append(lines, topLine{m.standing.key.name + ": " + m.standing.key.masked, headLine})
		var text strings.Builder
		k := keysText{w: &text, at: m.standing.at}
		k.printf("%s\n", m.standing.now)
		k.limits(m.standing.limits)
		k.notes(m.standing.notes)
		for line := range strings.Lines(text.String()) {
			if line = printable(strings.TrimRight(line, "\n")); line != "" && !strings.Contains(line, "  hash ") {
				lines = append(lines, topLine{line, plainLine})
			}
		}
	}
	return lines
}

// lastLines returns the prompt or note, and the key hints.
func (m topModel) lastLines() []topLine {
	help := topLine{"q end  tab page  up/down row  s order  enter standing  b ban  r reset  u unban  a plan  ? help", dimLine}
	if m.prompt != nil {
		return []topLine{{m.prompt.text(), headLine}, {"enter answer  esc leave it", dimLine}}
	}
	return []topLine{{m.note, headLine}, help}
}

// cut truncates text to width.
func cut(text string, width int) string {
	if uniseg.StringWidth(text) <= width {
		return text
	}
	var b strings.Builder
	left := width - 1
	for g := uniseg.NewGraphemes(text); g.Next(); {
		if left -= g.Width(); left < 0 {
			break
		}
		b.WriteString(g.Str())
	}
	return b.String() + "…"
}
