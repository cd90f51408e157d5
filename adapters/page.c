#include "adapters/page.h"

#include <inttypes.h>
#include <sodium.h>

static const char style[] =
	":root{color-scheme:light dark;--text:#1c2024;--back:#fff;--faint:#5b6570;--line:#d5dae0;--bar:#1f6feb}"
	"@media(prefers-color-scheme:dark){:root{--text:#e4e8ec;--back:#14171a;--faint:#a2adb8;--line:#363d45;--bar:#"
	"6ea8fe}}"
	"body{font:16px/1.45 system-ui,sans-serif;color:var(--text);background:var(--back);margin:0 auto;padding:1rem;"
	"max-width:70rem}"
	"h1{font-size:1.4rem;margin:0}h2{font-size:1.1rem;margin:1.8rem 0 .4rem}p{margin:.3rem "
	"0}.faint{color:var(--faint)}"
	".wide{overflow-x:auto}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}"
	"th,td{text-align:left;padding:.3rem .8rem .3rem 0;border-bottom:1px solid var(--line);white-space:nowrap}"
	"th{font-weight:600;color:var(--faint)}"
	".charts{display:flex;flex-wrap:wrap;gap:1rem "
	"2rem}figure{margin:0}figcaption{color:var(--faint);font-size:.9rem}"
	"h3{font-size:1rem;margin:1.2rem 0 "
	".2rem;overflow-wrap:anywhere}ul{padding-left:1.2rem}li{overflow-wrap:anywhere}"
	"dl{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:.15rem 1rem;margin:.2rem 0}"
	"dt{color:var(--faint)}dd{margin:0;overflow-wrap:anywhere}"
	"svg{display:block;border-bottom:1px solid var(--line);max-width:100%}rect{fill:var(--bar)}";

static void write_policy(struct buf *out)
{
	unsigned char digest[crypto_hash_sha256_BYTES];
	char text[sodium_base64_ENCODED_LEN(sizeof(digest), sodium_base64_VARIANT_ORIGINAL)];
	crypto_hash_sha256(digest, (const unsigned char *)style, sizeof(style) - 1);
	sodium_bin2base64(text, sizeof(text), digest, sizeof(digest), sodium_base64_VARIANT_ORIGINAL);
	buf_printf(out, "default-src 'none'; style-src 'sha256-%s'; base-uri 'none'; form-action 'none'", text);
}

void page_write_policy(struct buf *out)
{
	write_policy(out);
	buf_add_text(out, "; frame-ancestors 'none'"); /* means nothing within a page */
}

void page_begin(struct buf *out, const char *title, bool in_page)
{
	buf_add_text(out, "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\">");
	if (in_page) {
		buf_add_text(out, "<meta http-equiv=\"Content-Security-Policy\" content=\"");
		write_policy(out);
		buf_add_text(out, "\">");
	}
	buf_printf(out,
		"<title>%s</title><meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><style>%s"
		"</style></head><body><main><h1>%s</h1>",
		title, style, title);
}

void page_end(struct buf *out)
{
	buf_add_text(out, "</main></body></html>\n");
}

void page_add_text(struct buf *out, const char *text)
{
	for (; *text; text++) {
		if (*text == '&')
			buf_add_text(out, "&amp;");
		else if (*text == '<')
			buf_add_text(out, "&lt;");
		else if (*text == '>')
			buf_add_text(out, "&gt;");
		else if (*text == '"')
			buf_add_text(out, "&quot;");
		else if (*text == '\'')
			buf_add_text(out, "&#39;");
		else
			buf_add(out, (unsigned char)*text < 0x20 || *text == 0x7f ? "?" : text, 1);
	}
}

void page_add_cell(struct buf *out, const char *text)
{
	buf_add_text(out, "<td>");
	page_add_text(out, text);
	buf_add_text(out, "</td>");
}

void page_add_number(struct buf *out, uint64_t number)
{
	buf_printf(out, "<td>%" PRIu64 "</td>", number);
}

void page_add_time(struct buf *out, int64_t time_ms)
{
	int64_t seconds = time_ms > 0 ? time_ms / 1000 : 0;
	if (seconds < 120)
		buf_printf(out, "<td>%" PRId64 " s</td>", seconds);
	else if (seconds < 7200)
		buf_printf(out, "<td>%" PRId64 " min</td>", seconds / 60);
	else
		buf_printf(out, "<td>%" PRId64 " h</td>", seconds / 3600);
}

void page_begin_table(struct buf *out, const char *id, const char *title, const char *columns)
{
	buf_printf(out,
		"<section><h2 id=\"%s-title\">%s</h2><div class=\"wide\" tabindex=\"0\" role=\"region\" "
		"aria-labelledby=\"%s-title\"><table id=\"%s\"><thead><tr><th scope=\"col\">",
		id, title, id, id);
	for (; *columns; columns++) {
		if (*columns == '|')
			buf_add_text(out, "</th><th scope=\"col\">");
		else
			buf_add(out, columns, 1);
	}
	buf_add_text(out, "</th></tr></thead><tbody>");
}

void page_end_table(struct buf *out)
{
	buf_add_text(out, "</tbody></table></div></section>");
}
