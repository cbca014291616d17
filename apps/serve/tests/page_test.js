// SPDX-License-Identifier: MIT
/*  page_test.js - the server's page, run by node with as much of a document as it uses: node page_test.js URL

    Asks in each kind, with probabilities and without, and fails where the page does not show the answer, tokens a second,
    the queue and, on hover, probabilities. serve_test.py starts the server, whose model repeats its prompt. */
const assert = require('assert');
const vm = require('vm');
const url = process.argv[2];

class Element {
    constructor() { Object.assign(this, { children: [], own: '', value: '', className: '', title: '', disabled: false, checked: false }); }
    append(...children) { this.children.push(...children); }
    replaceChildren() { this.children = []; }
    get textContent() { return this.own + this.children.map(child => child.textContent).join(''); }
    set textContent(text) { this.own = text; this.children = []; }
}

const elements = {};
const at = id => elements[id] ??= new Element();
global.document = { getElementById: at, createElement: () => new Element(), hidden: false };
const ask = global.fetch;
global.fetch = (path, options) => ask(url + path, options);

async function until(what, why) {
    for (let i = 0; i < 500 && !what(); i++) await new Promise(done => setTimeout(done, 10));
    assert(what(), why);
}

async function send(kind, text, probable) {
    at('kind').value = kind;
    at('probable').checked = probable;
    at('text').value = text;
    at('form').onsubmit({ preventDefault() {} });
    assert(at('send').disabled && !at('stop').disabled && at('text').value === '');
    await until(() => !at('send').disabled, 'the answer does not end');
    return at('talk').children.at(-1);
}

async function main() {
    const html = await (await ask(url + '/')).text();
    Object.assign(at('temperature'), { value: '0' });
    Object.assign(at('tokens'), { value: '40' });
    vm.runInThisContext(html.slice(html.indexOf('<script>') + 8, html.lastIndexOf('</script>')));
    await until(() => at('queue').textContent === '0 running, 0 waiting.', at('queue').textContent);
    for (const kind of ['chat', 'text'])
        for (const probable of [false, true]) {
            const answer = await send(kind, 'h\u00e9llo <b>', probable);
            assert.strictEqual(answer.className, 'assistant');
            assert.strictEqual(answer.textContent, 'h\u00e9llo <b>');
            assert(/^\d+ tokens, [\d.]+ a second, the first after \d+\.\d\d s\.$/.test(at('speed').textContent), at('speed').textContent);
            assert.strictEqual(parseInt(at('speed').textContent), 10); // tokens are bytes
            const titles = answer.children.map(span => span.title);
            assert.strictEqual(titles.every(title => /^".*" \d+\.\d %(\n  ".*" \d+\.\d %)+/s.test(title)), probable, titles.join('|'));
            assert(probable || titles.every(title => title === ''));
        }
    const thought = await send('chat', '<think>hm</think>so', false);
    const said = kind => thought.children.filter(span => span.className === kind).map(span => span.textContent).join('');
    assert.deepStrictEqual([said('thought'), said(''), thought.textContent], ['hm', 'so', 'hmso']);
    const error = await send('chat', '!fail', false);
    assert(error.className === 'error' && error.textContent.includes('fake'), error.textContent);
    at('tokens').value = '4000';
    const stopping = send('chat', '#999abc', false);
    await until(() => at('talk').children.at(-1).textContent.length > 10, 'the answer does not begin');
    await until(() => at('queue').textContent === '1 running, 0 waiting.', at('queue').textContent);
    at('stop').onclick();
    const cut = await stopping;
    assert(cut.className === 'assistant' && cut.textContent.startsWith('abcabc') && cut.textContent.length < 2900);
    at('clear').onclick();
    assert.strictEqual(at('talk').children.length, 0);
    process.exit(0);
}

main().catch(error => { console.error(error); process.exit(1); });
