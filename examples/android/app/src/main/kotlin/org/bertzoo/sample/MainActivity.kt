package org.bertzoo.sample

import android.app.Activity
import android.os.Bundle
import android.widget.Button
import android.widget.EditText
import android.widget.LinearLayout
import android.widget.TextView
import java.util.concurrent.Executors

/** One screen: a text, a button for each file in the app, and the labels with their probabilities. */
class MainActivity : Activity() {
    private val worker = Executors.newSingleThreadExecutor()
    private val classifiers = HashMap<String, Classifier>() // by file; used on the worker's thread only

    override fun onCreate(savedInstanceState: Bundle?) {
        super.onCreate(savedInstanceState)
        val text = EditText(this).apply { hint = "Text" }
        val result = TextView(this)
        val screen = LinearLayout(this).apply {
            orientation = LinearLayout.VERTICAL
            fitsSystemWindows = true
            addView(text)
        }
        val files = assets.list("").orEmpty().filter { it.endsWith(".tflite") }
        if (files.isEmpty()) result.text = "The app has no .tflite file. See README.md."
        for (file in files) {
            screen.addView(Button(this).apply {
                this.text = file
                setOnClickListener { classify(file, text.text.toString(), result) }
            })
        }
        screen.addView(result)
        setContentView(screen)
    }

    private fun classify(file: String, text: String, result: TextView) = worker.execute {
        val lines = try {
            val classifier = classifiers.getOrPut(file) { open(file) }
            classifier.classify(text).map { (label, share) -> "%s %.1f %%".format(label, 100 * share) }
        } catch (error: Exception) { // the screen shows it
            listOf("$file: ${error.message}")
        }
        runOnUiThread { result.text = lines.joinToString("\n") }
    }

    private fun open(file: String): Classifier =
        if (file == "mediapipe.tflite") MediaPipeClassifier(this, file) else LiteRtClassifier(assets, file)

    override fun onDestroy() {
        worker.execute { classifiers.values.forEach { it.close() } }
        worker.shutdown()
        super.onDestroy()
    }
}
