// Logging in: with a key, a connection string, or a signature that somebody made for you.
import { html, useEffect, useState } from "../html.js";
import { connectionString, logIn, logOut } from "../api.js";
import { Choice, Field, Problem, useWork } from "../ui.js";

export const mark = new URL("../icon.svg", import.meta.url).pathname;

const EMULATOR = "RootManageSharedAccessKey";

export function Login() {
  const [way, setWay] = useState("key");
  const [name, setName] = useState(EMULATOR);
  const [secret, setSecret] = useState("");
  const [entity, setEntity] = useState("");
  const { busy, error, run } = useWork();
  useEffect(() => {
    document.title = "Log in · Polybus";
  }, []);
  const enter = (event) => {
    event.preventDefault();
    run(() => logIn(credentials(way, name, secret.trim(), entity)));
  };
  const secure = globalThis.crypto?.subtle;
  return html`
    <main class="login">
      <div class="box">
        <div class="brand"><img src=${mark} alt="" />Polybus</div>
        <section class="card"><div class="inside">
          <form onSubmit=${enter} autocomplete="off">
            <h1 class="visually-hidden">Log in</h1>
            ${logOut.reason && html`<div class="banner">${logOut.reason}</div>`}
            ${!secure && html`<div class="banner">Keys are not typed into a page that came unprotected over a network.
              Open it as <a href=${`https://${location.host}/`}>https://${location.host}/</a>, or use a signature.</div>`}
            <${Choice} label="Log in with" value=${way} onChange=${setWay}
              options=${[["key", "Key"], ["string", "Connection string"], ["signature", "Signature"]]} />
            ${way === "key" && html`
              <${Field} label="Key name"><input name="name" required value=${name} onInput=${(e) => setName(e.target.value)} /><//>
              <${Field} label="Key"><input name="key" type="password" required value=${secret} onInput=${(e) => setSecret(e.target.value)} /><//>
            `}
            ${way === "string" && html`
              <${Field} label="Connection string" hint="As the bus prints it; EntityPath is understood.">
                <input name="string" type="password" required value=${secret} onInput=${(e) => setSecret(e.target.value)} />
              <//>
            `}
            ${way === "signature" && html`
              <${Field} label="Shared access signature" hint="It begins with SharedAccessSignature sr=">
                <input name="signature" type="password" required value=${secret} onInput=${(e) => setSecret(e.target.value)} />
              <//>
            `}
            ${way !== "string" && html`
              <details>
                <summary>The key of one queue or topic</summary>
                <${Field} label="Queue or topic" hint="Leave it empty for a key of the namespace.">
                  <input name="entity" value=${entity} onInput=${(e) => setEntity(e.target.value)} />
                <//>
              </details>
            `}
            <${Problem}>${error}<//>
            <button class="primary" disabled=${busy}>Log in</button>
          </form>
        </div></section>
        <p class="under">The key stays in this browser: it signs a token for eight hours and is forgotten.</p>
      </div>
    </main>
  `;
}

function credentials(way, name, secret, entity) {
  if (way === "signature") return { signature: secret, entity };
  if (way === "key") return { name: name.trim(), key: secret, entity };
  const found = connectionString(secret);
  if (found.sharedaccesssignature) return { signature: found.sharedaccesssignature, entity: found.entitypath };
  if (!found.sharedaccesskeyname || !found.sharedaccesskey) throw new Error("A connection string has SharedAccessKeyName=…;SharedAccessKey=…");
  return { name: found.sharedaccesskeyname, key: found.sharedaccesskey, entity: found.entitypath };
}
