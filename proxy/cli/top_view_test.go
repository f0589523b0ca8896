package cli

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/rivo/uniseg"

	"github.com/weir-proxy/weir/proxy/admin"
)

// Whatever the terminal's size, no line is too wide and there are no more than fit, with
// the selected row, what is asked and what keys do among them.
func TestTopView_FitsAnySize(t *testing.T) {
	m := sampleModel()
	for i := range 40 {
		l := &m.data.Top.Limits[0]
		l.Refused.Keys = append(l.Refused.Keys, admin.TopKey{Masked: fmt.Sprintf("名前=%040d", i), ID: fmt.Sprint("id:", i), Count: 1})
	}
	m, _ = pressKeys(m, "<end><up>?")
	for width := 1; width < 130; width += 3 {
		for height := 1; height < 50; height += 3 {
			m, _ := m.update(topSize{width, height})
			lines := m.view()
			if len(lines) > height {
				t.Fatalf("%dx%d: %d lines", width, height, len(lines))
			}
			chosen := false
			for _, line := range lines {
				if got := uniseg.StringWidth(line.text); got > width {
					t.Fatalf("%dx%d: a line of %d: %q", width, height, got, line.text)
				}
				chosen = chosen || line.style == chosenLine
			}
			if width < minWidth || height < minHeight {
				continue
			}
			if !chosen || !strings.HasPrefix(lines[len(lines)-1].text, "q end") || len(lines) != height {
				t.Errorf("%dx%d: row selected: %t; the last of %d lines is %q", width, height, chosen, len(lines), lines[len(lines)-1].text)
			}
		}
	}
}

func TestTopView_WithoutAnything(t *testing.T) {
	m, _ := topModel{source: "a"}.update(topSize{80, 24})
	if got := text(m); !strings.Contains(got, "weir top  a  looking") {
		t.Errorf("before the first answer it shows\n%s", got)
	}
	m, _ = m.update(topFetched{})
	for page := range pageCount {
		m.page = page
		if empty := m.data.table(page, byRefused).empty; empty == "" || !strings.Contains(text(m), empty) {
			t.Errorf("%s without anything is\n%s", page.title(), text(m))
		}
	}
}

// What clients send cannot act on the terminal.
func TestTopView_ShowsNoControlCharacters(t *testing.T) {
	m := sampleModel()
	m.data.Top.Limits[0].Refused.Keys[0].Masked = "\x1b[31mred\u202e\n"
	if got := rowsOf(m, pageKeys)[0]; !strings.Contains(got, "?[31mred??") {
		t.Errorf("shows %q", got)
	}
}

func TestTopOnce_PrintsAllPages(t *testing.T) {
	var out bytes.Buffer
	if err := printTop(&out, sample(), 20); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"keys of the last 15 minutes, as of 2026-01-31T09:30:00Z\n", "\nKEYS\n  LIMIT      KEY         REFUSED  REQUESTS  HASH\n  sms.phone  phone=bad   25       25-30     hbad\n",
		"\nLIMITS\n", "\nROUTES\n", "\nNODES\n", "\nUPSTREAMS\n  UPSTREAM  TARGET    STATE    HEALTHY ON",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	out.Reset()
	if err := printTop(&out, topData{}, 20); err != nil || !strings.Contains(out.String(), "no node is known") {
		t.Errorf("without anything: %v\n%s", err, out.String())
	}
}

// Of each table there are no more rows than were asked for, and what is left out is said.
func TestTopOnce_PrintsSoManyRows(t *testing.T) {
	d := sample()
	for i := range 500 {
		d.Limits.Limits = append(d.Limits.Limits, admin.Limit{Route: fmt.Sprint("r", i), Name: "l"})
	}
	var out bytes.Buffer
	if err := printTop(&out, d, 1); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"25-30     hbad\n  and 1 other row; -n prints more\n", "\n  and 501 other rows; -n prints more\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if n := strings.Count(out.String(), "\n"); n > 25 {
		t.Errorf("%d lines", n)
	}
}
